"""Engines: one package for each; no engine imports another, except the local one.

Nothing outside this package asks an engine for its name: what differs between engines is in its Capabilities.
"""
