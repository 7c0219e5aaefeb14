"""Read a Spec from YAML: one pass over the document, guided by the types, collects every problem with its line.

Invalid values get their default, so that the rules for the whole spec can report further problems; a result with
problems must not be planned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, TypeVar, cast

from drumline.errors import Problem, SpecError
from drumline.record import Record
from drumline.spec import document
from drumline.spec.block import Block
from drumline.spec.document import Node, Path, Scalar, Sequence, is_null
from drumline.spec.location import Location
from drumline.spec.messages import (
    BareType,
    describe_node,
    describe_type,
    format_path,
    shorthand_type,
    suggest_path,
    union_members,
    unwrap,
)
from drumline.spec.struct import inspect
from drumline.spec.types import Spec
from drumline.words import nearest, printable

# The limit of problems that are reported.
MAX_PROBLEMS = 100

_INVALID: Final = object()

AnyBlock = TypeVar("AnyBlock", bound=Block)


class ReadResult(Record):
    """A spec, its problems, and the lines of its values."""

    spec: Spec
    source: str
    problems: tuple[Problem, ...]
    lines: Mapping[Path, int]
    invalid: frozenset[Path]
    # Only for a file of another system: the locations of values in it, and warnings about differences.
    locations: Mapping[Path, Location] = MappingProxyType({})
    warnings: tuple[Problem, ...] = ()

    def problem(self, path: Path, message: str) -> Problem:
        """Return a problem with the location of the value at this path, or of the nearest block around it."""
        written = path
        while written and written not in (self.locations or self.lines):
            written = written[:-1]
        if written in self.locations:
            return self.locations[written].problem(message)
        return Problem(self.source, self.lines.get(written), format_path(path), printable(message))

    def is_invalid(self, path: Path) -> bool:
        """Return whether a value at this path, above or below it is invalid."""
        return any(invalid[: len(path)] == path or path[: len(invalid)] == invalid for invalid in self.invalid)


def read_spec(data: bytes, source: str, kind: type[Spec]) -> ReadResult:
    """Read a spec of this type, which `spec_type` makes.

    Raise SpecError only if it is not a YAML document, or has too many problems.
    """
    parsed = document.parse(data, source)
    return read_tree(parsed.root, source, kind, parsed.duplicates)


def read_tree(
    root: Node, source: str, kind: type[Spec], duplicates: Iterable[document.DuplicateKey] = ()
) -> ReadResult:
    """Read a spec from a tree and its duplicate keys."""
    block, problems, lines, invalid = read_as(kind, root, source, duplicates)
    return ReadResult(block or kind(project="unread"), source, problems, lines, invalid)


def read_as(
    block: type[AnyBlock], root: Node, source: str, duplicates: Iterable[document.DuplicateKey] = ()
) -> tuple[AnyBlock | None, tuple[Problem, ...], Mapping[Path, int], frozenset[Path]]:
    """Read a tree as a block; return the block, its problems, its lines and the invalid paths."""
    walk = _Walk(source)
    walk.lines[()] = root.line
    for each in duplicates:
        walk.add_problem(each.line, each.path, f"appears a second time; first in line {each.first_line}")
    read = walk.read_block(_info(block), root, ())
    found = None if read is _INVALID else cast("AnyBlock", read)
    return found, tuple(walk.problems), walk.lines, frozenset(walk.invalid)


@cache
def _info(block: type[Block]) -> inspect.StructType:
    return cast("inspect.StructType", inspect.type_info(block))


class _Walk:
    """One pass over a document; collects problems and lines."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.lines: dict[Path, int] = {}
        self.invalid: set[Path] = set()

    def add_problem(self, line: int, path: Path, message: str) -> object:
        self.invalid.add(path)
        self.problems.append(Problem(self.source, line, format_path(path), printable(message)))
        if len(self.problems) >= MAX_PROBLEMS:
            last = max(problem.line or 0 for problem in self.problems)
            raise SpecError([*self.problems, Problem(self.source, last, "", "too many problems; checking stopped")])
        return _INVALID

    def expected(self, kind: inspect.Type, node: Node, path: Path) -> object:
        if path[-2:-1] == ("parameters",) and not isinstance(node, Scalar):
            message = "a list or range of values makes a sweep, which this version cannot run: give one value"
            return self.add_problem(node.line, path, message)
        expected = describe_type(kind) if path else "keys with their values, such as `project: digits`"
        return self.add_problem(node.line, path, f"expected {expected}, got {describe_node(node)}")

    def read(self, kind: inspect.Type, node: Node, path: Path) -> object:
        """Return the value of a node, or _INVALID after adding a problem."""
        self.lines.setdefault(path, node.line)
        match unwrap(kind):
            case BareType(type=inspect.StructType() as block):
                return self.read_block(block, node, path)
            case BareType(type=inspect.UnionType() as union) if _fits(union, node):
                return self.read(next(member for member in union_members(union) if _fits(member, node)), node, path)
            case BareType(type=inspect.VarTupleType() as items) if isinstance(node, Sequence):
                return self.read_list(items, node, path)
            case BareType(type=inspect.AnyType()):
                return self.read_any(node, path)
            case BareType(type=inspect.DictType() as entries) if isinstance(node, document.Mapping):
                return self.read_dict(entries, node, path)
            case BareType(type=bare) if isinstance(node, Scalar) and not isinstance(bare, inspect.UnionType):
                return self.read_scalar(kind, node, path)
            case _:
                return self.expected(kind, node, path)

    def read_block(self, kind: inspect.StructType, node: Node, path: Path) -> object:
        block = cast("type[Block]", kind.cls)
        fields = {field.encode_name: field for field in kind.fields}
        if not isinstance(node, document.Mapping):
            if block.short is None or not _fits(kind, node):
                return self.expected(kind, node, path)
            value = self.read(fields[block.short].type, node, path)
            return _INVALID if value is _INVALID else block(**{fields[block.short].name: value})
        values: dict[str, object] = {}
        for entry in node.entries:
            key, line, child = entry.key, entry.line, entry.node
            if key not in fields:
                # At the top, a key that begins with `x-` may define anchors, as in compose files.
                if path or not key.startswith("x-"):
                    self.reject_key(kind, key, line, path)
                continue
            self.lines[(*path, key)] = line
            # `env:` has no value if all lines below it are commented out.
            if is_null(child) and not fields[key].required and not block.keys_need_values:
                continue
            value = self.read(fields[key].type, child, (*path, key))
            if value is not _INVALID:
                values[fields[key].name] = value
        for key, field in fields.items():
            if field.required and field.name not in values:
                if (*path, key) not in self.invalid:
                    self.add_problem(node.line, (*path, key), "is missing")
                values[field.name] = "unread"
        return block(**values)

    def reject_key(self, kind: inspect.StructType, key: str, line: int, path: Path) -> None:
        meant = suggest_path(key, kind)
        if meant:
            self.invalid.add((*path, *meant))  # the similar key is then not reported as missing
            hint = f"did you mean `{format_path(meant)}`?"
        else:
            known = ", ".join(field.encode_name for field in kind.fields)
            hint = f"known here: {known}" if known else "there are no keys here"
            if path == ("environment",):  # compose files have variables under this key
                hint += "; variables go into `env`"
        self.add_problem(line, (*path, key), f"unknown key; {hint}")

    def read_list(self, kind: inspect.VarTupleType, node: Sequence, path: Path) -> object:
        if kind.min_length and len(node.items) < kind.min_length:
            return self.add_problem(node.line, path, "the list is empty")
        values = tuple(self.read(kind.item_type, item, (*path, index)) for index, item in enumerate(node.items))
        return _INVALID if any(value is _INVALID for value in values) else values

    def read_dict(self, kind: inspect.DictType, node: document.Mapping, path: Path) -> object:
        values: dict[str, object] = {}
        names = unwrap(kind.key_type)
        pattern = cast("inspect.StrType", names.type).pattern or ""
        for entry in node.entries:
            key, line, child = entry.key, entry.line, entry.node
            self.lines[(*path, key)] = line
            if pattern and not re.fullmatch(pattern, key):
                self.add_problem(line, (*path, key), f"is not {names.expected}")
                continue
            if is_null(child) and _may_be_null(kind.value_type):
                values[key] = None
                continue
            value = self.read(kind.value_type, child, (*path, key))
            if value is not _INVALID:
                values[key] = value
        return values

    def read_any(self, node: Node, path: Path) -> object:
        """Return any value, such as a part of a pod's patch."""
        match node:
            case Scalar() if isinstance(node.value, float) and not math.isfinite(node.value):
                return self.add_problem(
                    node.line, path, f"expected a number, got {describe_node(node)}, which is out of bounds"
                )
            case Scalar():
                return node.value
            case Sequence():
                items = [self.read_any(item, (*path, index)) for index, item in enumerate(node.items)]
                return _INVALID if any(item is _INVALID for item in items) else items
            case document.Mapping():
                for each in node.entries:
                    self.lines[(*path, each.key)] = each.line
                entries = {each.key: self.read_any(each.node, (*path, each.key)) for each in node.entries}
                return _INVALID if any(item is _INVALID for item in entries.values()) else entries

    def read_scalar(self, annotated: inspect.Type, node: Scalar, path: Path) -> object:
        unwrapped = unwrap(annotated)
        kind, expected, parse = unwrapped.type, unwrapped.expected, unwrapped.parse
        value = node.value
        if parse and value is not None:
            try:
                return parse(node.text)
            except ValueError as error:
                return self.add_problem(node.line, path, f"expected {error}, got {describe_node(node)}")
        match kind:
            case inspect.BoolType() if isinstance(value, bool):
                return value
            case inspect.BoolType() if node.text.lower() in ("yes", "no", "on", "off", "y", "n"):
                meant = "true" if node.text.lower() in ("yes", "on", "y") else "false"
                return self.add_problem(node.line, path, f'expected true or false, got "{node.text}": write {meant}')
            case inspect.IntType() if isinstance(value, int) and not isinstance(value, bool):
                return value if _in_bounds(kind, value) else self.out_of_bounds(kind, value, node, path)
            case inspect.IntType() if re.fullmatch(r"0[0-9]+", node.text):
                plain = node.text.lstrip("0") or "0"
                octal = f"got {describe_node(node)}, which some readers take as octal: write {plain}"
                return self.add_problem(node.line, path, f"expected {describe_type(kind)}, {octal}")
            case inspect.FloatType() if isinstance(value, int | float) and not isinstance(value, bool):
                fits = math.isfinite(value) and _in_bounds(kind, value)
                return float(value) if fits else self.out_of_bounds(kind, value, node, path)
            case inspect.StrType() if value is not None:
                if kind.pattern and not re.fullmatch(kind.pattern, node.text):
                    return self.expected(annotated, node, path)
                if kind.min_length and not node.text.strip():
                    return self.add_problem(node.line, path, f"expected {expected or 'text'}, got an empty one")
                if "\0" in node.text:
                    return self.add_problem(
                        node.line, path, "contains a NUL character, which cannot be passed to a process"
                    )
                return node.text
            case inspect.LiteralType() if node.text in kind.values:
                return node.text
            case inspect.LiteralType():
                near = nearest(node.text, map(str, kind.values))
                hint = f"; did you mean `{near}`?" if near else ""
                return self.add_problem(
                    node.line, path, f"expected {describe_type(kind)}, got {describe_node(node)}{hint}"
                )
            case _:
                return self.expected(annotated, node, path)

    def out_of_bounds(
        self, kind: inspect.IntType | inspect.FloatType, value: float, node: Scalar, path: Path
    ) -> object:
        return self.add_problem(node.line, path, f"expected {describe_type(kind, value)}, got {describe_node(node)}")


def _fits(kind: inspect.Type, node: Node) -> bool:
    """Return whether a node of this kind (scalar, list, mapping) can have this type."""
    match unwrap(kind).type:
        case inspect.UnionType() as union:
            return any(_fits(member, node) for member in union_members(union))
        case inspect.StructType() as block:
            short = shorthand_type(block)
            return isinstance(node, document.Mapping) or (short is not None and _fits(short, node))
        case inspect.DictType():
            return isinstance(node, document.Mapping)
        case inspect.VarTupleType():
            return isinstance(node, Sequence)
        case _:
            return isinstance(node, Scalar) and not is_null(node)


def _may_be_null(kind: inspect.Type) -> bool:
    kind = unwrap(kind).type
    return isinstance(kind, inspect.UnionType) and kind.includes_none


def _in_bounds(kind: inspect.IntType | inspect.FloatType, value: float) -> bool:
    return (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)
