"""The JSON Schema of ``drumline.yml``, made from the types, so that editors can complete and check it."""

from __future__ import annotations

import json
from typing import Any

from drumline.spec import cluster, hosts, types
from drumline.spec.block import Block
from drumline.spec.struct import schema_components
from drumline.spec.types import Spec


def make_schema() -> str:
    """Return the schema as JSON text, the same each time."""
    (root,), definitions = schema_components((Spec,), ref_template="#/$defs/{name}")
    known = {**vars(types), **vars(cluster), **vars(hosts)}.values()
    blocks = [block for block in known if isinstance(block, type) and issubclass(block, Block)]
    for block in blocks:
        if block.telling:
            properties = definitions[block.__name__]["properties"]
            properties.update({name: _without_null(schema) for name, schema in properties.items()})
        if block.short is not None and block.__name__ in definitions:
            whole = definitions[block.__name__]
            short = _without_null(whole["properties"][block.short])
            definitions[block.__name__] = {"anyOf": [short, whole], "description": whole.pop("description")}
    schema = definitions["Spec"]
    schema["patternProperties"] = {"^x-": {}}
    for definition in definitions.values():
        _tidy(definition)
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "drumline.yml",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    rest = {keyword: value for keyword, value in schema.items() if keyword != "anyOf"}
    kept = [option for option in schema.get("anyOf", ()) if option.get("type") != "null"]
    return {**rest, "anyOf": kept} if len(kept) > 1 else {**rest, **dict(*kept)}


def _tidy(schema: dict[str, Any]) -> None:
    """Say how values are written, and leave out what says nothing: defaults that are absent or whole blocks."""
    if schema.get("type") == "string":
        schema["type"] = ["string", "number", "boolean"]  # nobody writes `lr: "0.1"`; the reader takes what was typed
    schema["type"] = schema.pop("written", schema.get("type"))
    if isinstance(schema.get("default"), dict | list):
        del schema["default"]
    for keyword in [keyword for keyword, value in schema.items() if value is None]:
        del schema[keyword]
    parts = (*schema.get("properties", {}).values(), *schema.get("anyOf", ()))
    for part in (*parts, schema.get("items"), schema.get("additionalProperties")):
        if isinstance(part, dict):
            _tidy(part)
