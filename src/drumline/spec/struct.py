"""The door to msgspec, which makes the types of a spec and tells of them.

What it takes from typing_extensions, where that is installed, Python's own `typing` has as well, and that takes longer
to load than msgspec itself. The patterns of our types it would compile, to decode with; we read specs ourselves.
"""

from __future__ import annotations

from drumline.spec.lean import patterns_when_used, without

with without("typing_extensions"), patterns_when_used():
    from msgspec import Meta, Struct, field, inspect, structs
    from msgspec.json import schema_components

__all__ = ("Meta", "Struct", "field", "inspect", "schema_components", "structs")
