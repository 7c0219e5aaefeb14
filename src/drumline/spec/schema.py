"""The JSON Schema of ``drumline.yml``, made from the types, so that editors can complete and check it."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec

from drumline.spec import types
from drumline.spec.types import Block, Spec


def make_schema() -> str:
    """Return the schema as JSON text, the same each time."""
    (root,), definitions = msgspec.json.schema_components((Spec,), ref_template="#/$defs/{name}")
    blocks = [block for block in vars(types).values() if isinstance(block, type) and issubclass(block, Block)]
    for block in blocks:
        if block.short is not None and block.__name__ in definitions:
            whole = definitions[block.__name__]
            short = _without_null(whole["properties"][block.short])
            definitions[block.__name__] = {"anyOf": [short, whole], "description": whole.pop("description")}
    schema = definitions["Spec"]
    schema["patternProperties"] = {"^x-": {}}
    for definition in definitions.values():
        _drop_defaults(definition)
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "drumline.yml",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    kept = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
    return cast("dict[str, Any]", kept[0]) if len(kept) == 1 else {"anyOf": kept}


def _drop_defaults(schema: Any) -> None:
    """Take out defaults that say nothing: `null`, and blocks of defaults."""
    if isinstance(schema, dict):
        if schema.get("default", ...) is None or isinstance(schema.get("default"), dict | list):
            del schema["default"]
        for value in schema.values():
            _drop_defaults(value)
    elif isinstance(schema, list):
        for value in schema:
            _drop_defaults(value)
