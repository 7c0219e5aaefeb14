"""The JSON Schema of ``drumline.yml``, made from the types, so that editors can complete and check it."""

from __future__ import annotations

import json
from typing import Any, cast

from drumline.spec.block import Block
from drumline.spec.messages import unwrap
from drumline.spec.struct import inspect, schema_components
from drumline.spec.types import Spec


def make_schema(kind: type[Spec]) -> str:
    """Return the schema of specs of this type as JSON text, the same each time."""
    blocks = blocks_of(kind)
    references, definitions = schema_components(blocks, ref_template="#/$defs/{name}")
    names = [reference["$ref"].rpartition("/")[2] for reference in references]
    definitions[names[0]]["patternProperties"] = {"^x-": {}}
    for block, name in zip(blocks, names, strict=True):
        whole = definitions[name]
        if block.keys_need_values:
            properties = whole["properties"]
            properties.update({key: _without_null(schema) for key, schema in properties.items()})
        if block.short is not None:
            short = _without_null(whole["properties"][block.short])
            definitions[name] = {"anyOf": [short, whole], "description": whole.pop("description")}
    for definition in definitions.values():
        _tidy(definition)
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "drumline.yml",
        **references[0],
        "$defs": dict(sorted(definitions.items())),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def blocks_of(kind: type[Block]) -> tuple[type[Block], ...]:
    """Return the blocks that a block of this type may have in it, itself first."""
    return tuple(_blocks(inspect.type_info(kind)))


def _blocks(kind: inspect.Type) -> dict[type[Block], None]:
    """Return the blocks of which a type consists, itself first."""
    match unwrap(kind).type:
        case inspect.StructType() as block:
            inner = (_blocks(field.type) for field in block.fields)
            return {cast("type[Block]", block.cls): None, **{each: None for found in inner for each in found}}
        case inspect.UnionType() as union:
            return {each: None for member in union.types for each in _blocks(member)}
        case inspect.VarTupleType() as items:
            return _blocks(items.item_type)
        case inspect.DictType() as entries:
            return _blocks(entries.value_type)
        case _:
            return {}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    rest = {keyword: value for keyword, value in schema.items() if keyword != "anyOf"}
    kept = [option for option in schema.get("anyOf", ()) if option.get("type") != "null"]
    return {**rest, "anyOf": kept} if len(kept) > 1 else {**rest, **dict(*kept)}


def _tidy(schema: dict[str, Any]) -> None:
    """Set the JSON types as written in the file, and remove defaults that are null or whole blocks."""
    if schema.get("type") == "string":
        schema["type"] = ["string", "number", "boolean"]  # `lr: 0.1` needs no quotes
    schema["type"] = schema.pop("written", schema.get("type"))
    if isinstance(schema.get("default"), dict | list):
        del schema["default"]
    for keyword in [keyword for keyword, value in schema.items() if value is None]:
        del schema[keyword]
    parts = (*schema.get("properties", {}).values(), *schema.get("anyOf", ()))
    for part in (*parts, schema.get("items"), schema.get("additionalProperties")):
        if isinstance(part, dict):
            _tidy(part)
