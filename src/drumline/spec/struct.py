"""The parts of msgspec that drumline uses; no other module imports msgspec."""

from __future__ import annotations

from msgspec import Meta, Struct, defstruct, field, inspect, structs
from msgspec.json import schema_components

__all__ = ("Meta", "Struct", "defstruct", "field", "inspect", "schema_components", "structs")
