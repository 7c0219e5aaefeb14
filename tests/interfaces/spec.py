"""The keys of the spec with their types, limits and defaults, from its JSON Schema."""

from __future__ import annotations

import json
from typing import Any

from drumline.load.engine import known_spec_type
from drumline.spec.schema import make_schema
from interfaces.protocols import Lines

_LIMITS = ("minimum", "maximum", "minLength", "minItems", "pattern", "propertyNames", "default")
_TEXT = ["string", "number", "boolean"]  # a text that YAML may have taken for something else


def spec_lines() -> Lines:
    """Yield every key by its path with what its value may be; a block that occurs twice is listed where it is first."""
    schema = json.loads(make_schema(known_spec_type()))
    forms: dict[str, dict[str, None]] = {}
    for path, form in _lines("", schema, schema["$defs"], {}):
        forms.setdefault(path, {})[form] = None
    yield from ((path, " or ".join(filter(None, several))) for path, several in forms.items() if path)


def _lines(path: str, schema: dict[str, Any], blocks: dict[str, Any], known: dict[str, str]) -> Lines:
    if name := schema.get("$ref", "").rpartition("/")[2]:
        if name in known:
            yield path, f"as {known[name]}"
            return
        known[name] = path or "the spec"
        schema = blocks[name]
    required = "required" if path.endswith("!") else ""
    path = path.removesuffix("!")
    yield path, ", ".join(filter(None, (required, _limits(schema))))
    for option in schema.get("anyOf", ()):
        yield from _lines(path, option, blocks, known)
    for key, value in schema.get("properties", {}).items():
        mark = "!" if key in schema.get("required", ()) else ""
        yield from _lines(f"{path}.{key}{mark}" if path else f"{key}{mark}", value, blocks, known)
    for part, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(value := schema.get(part), dict):
            yield from _lines(f"{path}{mark}", value, blocks, known)


def _limits(schema: dict[str, Any]) -> str:
    """Return what a value may be, in few words."""
    kind = "text" if schema.get("type") == _TEXT else schema.get("type", "")
    kinds = "|".join(schema["enum"]) if "enum" in schema else "|".join(kind) if isinstance(kind, list) else kind
    limits = [f"{name} {json.dumps(schema[name], ensure_ascii=False)}" for name in _LIMITS if name in schema]
    return ", ".join(part for part in (kinds if kinds != "object" else "", *limits) if part)
