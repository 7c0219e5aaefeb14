"""The JSON Schema accepts and refuses the same specs as the reader, as far as it can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from drumline.errors import SpecError
from drumline.load.engine import known_spec_type
from drumline.spec import document
from drumline.spec.document import Mapping, Node, Scalar, Sequence
from drumline.spec.read import read_spec
from drumline.spec.schema import make_schema
from drumline.spec.types import Spec
from scaffold.bad_specs import TABLE
from scaffold.strategies import spec_files

GOLDEN = Path(__file__).parents[2] / "golden"
SCHEMA: dict[str, Any] = json.loads(make_schema(known_spec_type()))
VALIDATOR = Draft202012Validator(SCHEMA)

# A schema cannot check the meaning of a text, nor repeated keys.
BEYOND_A_SCHEMA = {
    "an escaped NUL",
    "a repeated key",
    "a repeated key in a list",
    "no memory, and too much",
    "a time out of bounds",
    "an empty command among others",
    "a name with a line break",
}


def plain_data(node: Node) -> object:
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain_data(item) for item in node.items]
        case Mapping():
            return {entry.key: plain_data(entry.node) for entry in node.entries}


def accepts(text: str) -> bool:
    return bool(VALIDATOR.is_valid(plain_data(document.parse(text.encode(), "f").root)))


def refused_by_the_reader() -> list[tuple[str, str]]:
    """Return the bad specs that are valid YAML and have problems that the reader finds without the rules."""
    found = []
    for name, spec, _ in TABLE:
        try:
            reading = read_spec(spec.encode(), "f", known_spec_type())
        except SpecError:
            continue
        if reading.problems:
            found.append((name, spec))
    return found


def test_the_schema_of_the_engines_of_drumline_is_known() -> None:
    assert (GOLDEN / "schema.json").read_text("utf-8") == make_schema(known_spec_type())


def test_the_schema_is_valid() -> None:
    assert Draft202012Validator(Draft202012Validator.META_SCHEMA).is_valid(SCHEMA)


def test_the_schema_has_no_keywords_of_drumline() -> None:
    assert '"written"' not in make_schema(known_spec_type())


@given(spec_files())
def test_the_schema_accepts_what_the_reader_accepts(written: tuple[Spec, str]) -> None:
    _, text = written
    assert accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        "parameters: {lr: 0.001, layers: 2, fast: true, name: x}",
        "resources: {memory: 16GiB}",
        "timeouts: {grace: 30, start: 5m, run: 1.5}",
        "engine: {default: local}",
        "env: {A: 1, B: {from: X}, C: {value: 1.5, override: true}}",
        "x-mine: anything",
        "roles: {worker: 3, chief: {port: [1]}}",
        "data: [a, {path: b, name: c}]",
    ],
)
def test_the_schema_accepts_common_values(text: str) -> None:
    assert accepts(f"project: x\nrun: x\n{text}")


def test_enough_bad_specs_are_left_to_compare() -> None:
    assert len(refused_by_the_reader()) > 50


@pytest.mark.parametrize(("name", "spec"), refused_by_the_reader(), ids=lambda value: value.partition("\n")[0][:40])
def test_the_schema_refuses_what_the_reader_refuses(name: str, spec: str) -> None:
    assert accepts(spec) == (name in BEYOND_A_SCHEMA)


def test_every_key_of_a_spec_can_be_completed() -> None:
    assert set(SCHEMA["$defs"]["Spec"]["properties"]) == set(Spec.__struct_encode_fields__)
    whole = SCHEMA["$defs"]["Engine"]["anyOf"][1]["properties"]
    assert set(whole) == {"default", "local", "ssh", "kubernetes", "jobset", "tfjob"}
