"""WHERE: the places that can run a line. One package per engine; none knows another.

Nothing outside this package asks an engine for its name: what differs between engines is in its Capabilities.
"""
