"""The names that are used of msgspec; the only module that imports it."""

from __future__ import annotations

from msgspec import Meta, Struct, defstruct, field, inspect, structs
from msgspec.json import schema_components

__all__ = ("Meta", "Struct", "defstruct", "field", "inspect", "schema_components", "structs")
