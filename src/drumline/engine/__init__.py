"""Engines: one package for each. An engine imports no other engine, except the local one.

No code outside this package depends on the name of an engine: differences between engines are in their Capabilities.
"""
