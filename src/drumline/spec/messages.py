"""Parts of the reader's messages: what was expected, what was found, and a suggestion."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

from drumline.record import Record
from drumline.spec import document
from drumline.spec.block import Block
from drumline.spec.document import Node, Path, Scalar, Sequence
from drumline.spec.struct import inspect
from drumline.words import nearest, printable

# Keys of other launchers, with the key of drumline that is suggested for each.
_OTHER_KEYS = {
    "count": "replicas", "num_replicas": "replicas", "mem": "memory", "ram": "memory", "gpu": "gpus", "cpu": "cpus",
    "command": "run", "cmd": "run", "args": "argv", "envs": "env", "params": "parameters",
    "workers": "worker", "parameter_servers": "ps", "eval": "evaluator", "timeout": "timeouts", "retries": "restart",
    "max_restarts": "restart", "output_dir": "output", "checkpoint_dir": "checkpoint", "working_dir": "workdir",
    "backend": "engine",
}  # fmt: skip


class BareType(Record):
    """A type without annotations, with its description for messages and its parser."""

    type: inspect.Type
    expected: str | None
    parse: Callable[[str], object] | None


def unwrap(kind: inspect.Type) -> BareType:
    """Return a type without its annotations."""
    extra: dict[str, Any] = {}
    while isinstance(kind, inspect.Metadata):
        extra = {**(kind.extra or {}), **extra}
        kind = kind.type
    return BareType(kind, extra.get("expected"), extra.get("parse"))


def union_members(kind: inspect.UnionType) -> Iterator[inspect.Type]:
    """Return the types of a union, without None."""
    return (member for member in kind.types if not isinstance(member, inspect.NoneType))


def shorthand_type(kind: inspect.StructType) -> inspect.Type | None:
    """Return the type of the field that may be written instead of a block; None if there is none."""
    short = cast("type[Block]", kind.cls).short
    return next((field.type for field in kind.fields if field.encode_name == short), None)


def describe_type(kind: inspect.Type, value: float = -math.inf) -> str:
    """Return a description of a type for `expected …` in a message: `a whole number of at least 1`.

    If `value` is above the maximum of the type, the description has the maximum: `a whole number of at most 9`.
    """
    unwrapped = unwrap(kind)
    kind = unwrapped.type
    if unwrapped.expected:
        return unwrapped.expected
    match kind:
        case inspect.IntType():
            return f"a whole number{_bounds(kind, value)}"
        case inspect.FloatType():
            return f"a number{_bounds(kind, value)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType():
            return "one of " + ", ".join(str(value) for value in kind.values)
        case inspect.VarTupleType():
            return f"a list, each {describe_type(kind.item_type)}"
        case inspect.StructType():
            keys = ", ".join(field.encode_name for field in kind.fields)
            whole = f"a mapping of {keys}" if keys else "a mapping"
            short = shorthand_type(kind)
            return whole if short is None else f"{describe_type(short)}, or {whole}"
        case inspect.UnionType():
            return " or ".join(describe_type(member) for member in union_members(kind))
        case inspect.DictType():
            return "a mapping of names to values"
        case _:
            return "text"


def describe_node(node: Node) -> str:
    """Return a description of a node for `got …` in a message: `a list`, `nothing`, `"text"`."""
    match node:
        case Sequence():
            return "a list"
        case document.Mapping():
            return "a mapping"
        case Scalar() if node.value is None:
            return "nothing"
        case Scalar():
            text = node.text if len(node.text) <= 60 else node.text[:57] + "..."
            return f'"{text}"' if isinstance(node.value, str) else text


def suggest_path(key: str, kind: inspect.StructType) -> Path | None:
    """Return the path of the known key that an unknown key is most similar to; None if no key is similar."""
    here: dict[str, Path] = {field.encode_name: (field.encode_name,) for field in kind.fields}
    below: dict[str, Path] = {}
    for path in _paths_below(kind):
        below.setdefault(cast("str", path[-1]), path)
    usual = _OTHER_KEYS.get(key.lower().replace("-", "_"), key)
    if usual in here or usual in below:
        return here.get(usual) or below[usual]
    if near := nearest(key, here):
        return here[near]
    near = nearest(key, below, alike=0.8)
    return below[near] if near else None


def _paths_below(kind: inspect.StructType) -> Iterator[Path]:
    """Yield the paths of all keys in the blocks inside a block, by depth; at each depth, those of `worker` first."""
    level: list[tuple[Path, inspect.StructType]] = [((), kind)]
    while level:
        level = [
            ((*path, field.encode_name), inner)
            for path, block in level
            for field in block.fields
            for inner in _blocks(field.type)
        ]
        for path, block in sorted(level, key=lambda each: "worker" not in each[0]):
            yield from ((*path, field.encode_name) for field in block.fields)


def format_path(path: Path) -> str:
    """Return a path as text: `roles.worker.port[1]`; keys that are not words are quoted."""
    spelled = ""
    for part in path:
        if isinstance(part, int):
            spelled += f"[{part}]"
        else:
            word = part if re.fullmatch(r"[\w-]+", part) else f'"{part}"'
            spelled += f".{word}" if spelled else word
    return printable(spelled)


def _blocks(kind: inspect.Type) -> Iterator[inspect.StructType]:
    kind = unwrap(kind).type
    if isinstance(kind, inspect.UnionType):
        for member in union_members(kind):
            yield from _blocks(member)
    elif isinstance(kind, inspect.StructType):
        yield kind


def _bounds(kind: inspect.IntType | inspect.FloatType, value: float) -> str:
    if kind.le is not None and value > kind.le:
        return f" of at most {kind.le}"
    if kind.le == 65535:
        return f" from {kind.ge} to {kind.le}"
    return "" if kind.ge is None else f" of at least {kind.ge}"
