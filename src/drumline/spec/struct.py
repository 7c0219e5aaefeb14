"""The door to msgspec, which makes the types of a spec and tells of them."""

from __future__ import annotations

from msgspec import Meta, Struct, defstruct, field, inspect, structs
from msgspec.json import schema_components

__all__ = ("Meta", "Struct", "defstruct", "field", "inspect", "schema_components", "structs")
