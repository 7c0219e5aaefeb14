"""From YAML to a Spec: one walk along the types, which collects every problem with its line.

What cannot be read is left at its default, so that the rules which look at the whole spec can still say
what else is wrong; a Reading with problems must not be planned.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

from msgspec import inspect

from drumline.errors import Problem
from drumline.spec import document
from drumline.spec.document import Node, Scalar, Sequence
from drumline.spec.types import Block, Spec

Path = tuple[str | int, ...]
Parse = Callable[[str], object]

_BAD: Final = object()

# What other launchers call it; said when the right word is known where the wrong one stands.
_ELSEWHERE = {
    "count": "replicas", "num_replicas": "replicas", "mem": "memory", "ram": "memory", "gpu": "gpus", "cpu": "cpus",
    "command": "run", "cmd": "run", "args": "argv", "environment": "env", "envs": "env", "params": "parameters",
    "workers": "worker", "parameter_servers": "ps", "eval": "evaluator", "timeout": "timeouts", "retries": "restart",
    "max_restarts": "restart", "output_dir": "output", "checkpoint_dir": "checkpoint", "working_dir": "workdir",
    "backend": "engine",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """A spec as read, what was wrong with it, and where each of its values stands."""

    spec: Spec
    source: str
    problems: tuple[Problem, ...]
    lines: Mapping[Path, int]

    def problem(self, path: Path, message: str) -> Problem:
        """Say something about the value at this path, or about the nearest block around it that is written down."""
        written = path
        while written and written not in self.lines:
            written = written[:-1]
        return Problem(self.source, self.lines.get(written), _spell(path), message)

    def is_bad(self, path: Path) -> bool:
        """Whether something was already wrong at this path or right above or below it."""
        spelled = _spell(path)
        return any(
            problem.path == spelled or spelled.startswith(f"{problem.path}.") or problem.path.startswith(f"{spelled}.")
            for problem in self.problems
            if problem.path
        )


def read_spec(data: bytes, source: str) -> Reading:
    """Read a spec; raise SpecError only for what is not even a YAML mapping."""
    root = document.parse(data, source)
    walk = _Walk(source)
    spec = walk.read_block(_info(Spec), root, ())
    if spec is _BAD:
        spec = Spec(project="unread")
    return Reading(cast("Spec", spec), source, tuple(walk.problems), walk.lines)


@cache
def _info(block: type[Block]) -> inspect.StructType:
    return cast("inspect.StructType", inspect.type_info(block))


class _Walk:
    """One pass over a document; owns the problems and lines it finds."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.lines: dict[Path, int] = {}

    def complain(self, line: int, path: Path, message: str) -> object:
        self.problems.append(Problem(self.source, line, _spell(path), message))
        return _BAD

    def read(self, kind: inspect.Type, node: Node, path: Path) -> object:
        """Return the value of a node, or _BAD after saying what is wrong with it."""
        self.lines.setdefault(path, node.line)
        kind, words, parse = _unwrap(kind)
        match kind:
            case inspect.StructType():
                return self.read_block(kind, node, path)
            case inspect.UnionType():
                return (
                    self.read(_choose(kind, node), node, path) if _fits(kind, node) else self.expected(kind, node, path)
                )
            case inspect.VarTupleType() if isinstance(node, Sequence):
                return self.read_list(kind, node, path)
            case inspect.DictType() if isinstance(node, document.Mapping):
                return self.read_dict(kind, node, path)
            case _ if isinstance(node, Scalar):
                return self.read_scalar(kind, node, path, words, parse)
            case _:
                return self.expected(kind, node, path, words)

    def read_block(self, kind: inspect.StructType, node: Node, path: Path) -> object:
        block = cast("type[Block]", kind.cls)
        fields = {field.encode_name: field for field in kind.fields}
        if not isinstance(node, document.Mapping):
            if block.short is None or _is_null(node):
                return self.expected(kind, node, path)
            if not _fits(fields[block.short].type, node):
                return self.expected(kind, node, path)
            value = self.read(fields[block.short].type, node, path)
            return _BAD if value is _BAD else block(**{fields[block.short].name: value})
        values: dict[str, object] = {}
        for key, line, child in node.entries:
            if key not in fields:
                if not (not path and key.startswith("x-")):  # room for anchors, as in compose files
                    self.complain(line, path, _unknown(key, fields))
                continue
            self.lines[(*path, key)] = line
            # `env:` with nothing behind it is what is left when its last line was commented out.
            if _is_null(child) and not fields[key].required:
                continue
            value = self.read(fields[key].type, child, (*path, key))
            if value is not _BAD:
                values[fields[key].name] = value
        for key, field in fields.items():
            if field.required and field.name not in values:
                if (*path, key) not in self.lines:
                    self.complain(node.line, path, f"`{key}` is missing")
                values[field.name] = "unread"
        return block(**values)

    def read_list(self, kind: inspect.VarTupleType, node: Sequence, path: Path) -> object:
        if kind.min_length and len(node.items) < kind.min_length:
            return self.complain(node.line, path, "the list is empty")
        values = [self.read(kind.item_type, item, (*path, index)) for index, item in enumerate(node.items)]
        return tuple(value for value in values if value is not _BAD) or _BAD

    def read_dict(self, kind: inspect.DictType, node: document.Mapping, path: Path) -> object:
        values = {}
        for key, line, child in node.entries:
            self.lines[(*path, key)] = line
            key_type, words, _ = _unwrap(kind.key_type)
            pattern = cast("inspect.StrType", key_type).pattern
            if pattern and not re.search(pattern, key):
                self.complain(line, path, f"`{key}` is not {words}")
                continue
            value = self.read(kind.value_type, child, (*path, key))
            if value is not _BAD:
                values[key] = value
        return values

    def read_scalar(
        self, kind: inspect.Type, node: Scalar, path: Path, words: str | None, parse: Parse | None
    ) -> object:
        value = node.value
        if parse and value is not None:
            try:
                return parse(node.text)
            except ValueError as error:
                return self.complain(node.line, path, f"expected {error}, got {_got(node)}")
        match kind:
            case inspect.BoolType() if isinstance(value, bool):
                return value
            case inspect.BoolType() if node.text.lower() in ("yes", "no", "on", "off", "y", "n"):
                meant = "true" if node.text.lower() in ("yes", "on", "y") else "false"
                return self.complain(node.line, path, f'expected true or false, got "{node.text}": write {meant}')
            case inspect.IntType() if isinstance(value, int) and not isinstance(value, bool):
                return value if _in_bounds(kind, value) else self.expected(kind, node, path)
            case inspect.IntType() if re.fullmatch(r"0[0-9]+", node.text):
                plain = node.text.lstrip("0") or "0"
                return self.complain(
                    node.line,
                    path,
                    f"{_expected(kind)}, got {node.text}, which some read as octal: write {plain}",
                )
            case inspect.FloatType() if isinstance(value, int | float) and not isinstance(value, bool):
                fits = math.isfinite(value) and _in_bounds(kind, value)
                return float(value) if fits else self.expected(kind, node, path)
            case inspect.StrType() if value is not None:
                if kind.pattern and not re.search(kind.pattern, node.text):
                    return self.complain(node.line, path, f"expected {words}, got {_got(node)}")
                if kind.min_length and not node.text.strip():
                    return self.complain(node.line, path, f"expected {words or 'text'}, got an empty one")
                return node.text
            case inspect.LiteralType() if node.text in kind.values:
                return node.text
            case inspect.LiteralType():
                near = difflib.get_close_matches(node.text, [str(value) for value in kind.values], n=1)
                hint = f"; did you mean `{near[0]}`?" if near else ""
                return self.complain(node.line, path, f"{_expected(kind)}, got {_got(node)}{hint}")
            case _:
                return self.expected(kind, node, path, words)

    def expected(self, kind: inspect.Type, node: Node, path: Path, words: str | None = None) -> object:
        expected = f"expected {words}" if words else _expected(kind)
        if path[:1] == ("parameters",) and len(path) == 2 and not isinstance(node, Scalar):
            return self.complain(
                node.line,
                path,
                "a list or range of values makes a sweep, which this version cannot run: give one value",
            )
        return self.complain(node.line, path, f"{expected}, got {_got(node)}")


def _unwrap(kind: inspect.Type) -> tuple[inspect.Type, str | None, Parse | None]:
    """Return the bare type, the words for what it expects, and how to read it, where the type says so."""
    extra: dict[str, Any] = {}
    while isinstance(kind, inspect.Metadata):
        extra = {**(kind.extra or {}), **extra}
        kind = kind.type
    return kind, extra.get("words"), extra.get("parse")


def _members(kind: inspect.UnionType) -> Iterator[inspect.Type]:
    return (member for member in kind.types if not isinstance(member, inspect.NoneType))


def _fits(kind: inspect.Type, node: Node) -> bool:
    """Whether this kind of node can be meant for this type at all."""
    kind, _, _ = _unwrap(kind)
    match kind:
        case inspect.UnionType():
            return any(_fits(member, node) for member in _members(kind))
        case inspect.StructType():
            short = cast("type[Block]", kind.cls).short
            if isinstance(node, document.Mapping):
                return True
            return short is not None and _fits(next(f.type for f in kind.fields if f.encode_name == short), node)
        case inspect.DictType():
            return isinstance(node, document.Mapping)
        case inspect.VarTupleType():
            return isinstance(node, Sequence)
        case _:
            return isinstance(node, Scalar) and not _is_null(node)


def _choose(kind: inspect.UnionType, node: Node) -> inspect.Type:
    return next(member for member in _members(kind) if _fits(member, node))


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def _in_bounds(kind: inspect.IntType | inspect.FloatType, value: float) -> bool:
    return (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)


def _unknown(key: str, fields: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(key, fields, n=1, cutoff=0.6)
    meant = near[0] if near else _ELSEWHERE.get(key.lower().replace("-", "_"))
    if meant in fields:
        return f"unknown key `{key}`; did you mean `{meant}`?"
    if not fields:
        return f"unknown key `{key}`; there are none here"
    return f"unknown key `{key}`; known here: {', '.join(fields)}"


def _expected(kind: inspect.Type) -> str:
    return f"expected {_describe(kind)}"


def _describe(kind: inspect.Type) -> str:
    kind, words, _ = _unwrap(kind)
    if words:
        return words
    match kind:
        case inspect.IntType():
            return f"a whole number{_bounds(kind)}"
        case inspect.FloatType():
            return f"a number{_bounds(kind)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType():
            return "one of " + ", ".join(str(value) for value in kind.values)
        case inspect.VarTupleType():
            return f"a list, each {_describe(kind.item_type)}"
        case inspect.StructType():
            short = cast("type[Block]", kind.cls).short
            keys = (
                "a mapping of " + ", ".join(field.encode_name for field in kind.fields) if kind.fields else "a mapping"
            )
            if short is None:
                return keys
            return f"{_describe(next(f.type for f in kind.fields if f.encode_name == short))}, or {keys}"
        case inspect.UnionType():
            return " or ".join(_describe(member) for member in _members(kind))
        case inspect.DictType():
            return "a mapping of names to values"
        case _:
            return "text"


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None and kind.le == 65535:
        return f" from {kind.ge} to {kind.le}"
    return f" of at least {kind.ge}" if kind.ge is not None else ""


def _got(node: Node) -> str:
    match node:
        case Sequence():
            return "a list"
        case document.Mapping():
            return "a mapping"
        case Scalar() if node.value is None:
            return "nothing"
        case Scalar():
            text = node.text if len(node.text) <= 60 else node.text[:57] + "..."
            return json.dumps(text, ensure_ascii=False) if isinstance(node.value, str) else text


def _spell(path: Path) -> str:
    spelled = ""
    for part in path:
        spelled += f"[{part}]" if isinstance(part, int) else f".{part}" if spelled else part
    return spelled
