"""A native spec in the making: the values a dialect's file comes to, each with the place where it was said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from drumline.errors import Problem, SpecError
from drumline.spec import document
from drumline.spec.document import Entry, Node, Path, Scalar, Sequence
from drumline.spec.location import Location

# The order in which a person would write them.
_ORDER = (
    *("project", "name", "framework", "tensorflow", "environment", "roles", "parameters", "run", "resources", "port"),
    *("env", "workdir", "output", "checkpoint", "data", "restart", "timeouts", "success", "tensorboard", "engine"),
)


ROLES = {"chief": "chief", "master": "chief", "worker": "worker", "ps": "ps", "evaluator": "evaluator"}
NOT_CARRIED = "is not carried over"
LocatedValue = tuple[object, Location]  # a value, and the place that says it


class SpecDraft:
    """Collects what a spec will say, what was decided on the way, and what could not be carried over."""

    def __init__(self, dialect: str, location: Location) -> None:
        self.dialect = dialect
        self.location = location
        self.values: dict[str, Any] = {}
        self.locations: dict[Path, Location] = {}
        self.notes: dict[Path, list[str]] = {}
        self.problems: list[Problem] = []
        self._warnings: list[Problem] = []

    def put(self, path: Path, value: object, location: Location, note: str = "") -> None:
        """Say this at a path of the spec, because of what stands at the spot; a note says why, if one would ask."""
        inside = self.values
        for part in path[:-1]:
            inside = inside.setdefault(str(part), {})
        inside[str(path[-1])] = node_of(value, location.line)
        self.locations[path] = location
        if note:
            self.note(path, note)

    def put_by_role(self, key: str, said: Mapping[str, LocatedValue | None]) -> None:
        """Say what roles say at a key: once for all where all say the same."""
        first, *others = said.values()
        if first and all(each and each[0] == first[0] for each in others):
            self.put((key,), *first)
            return
        for role, each in said.items():
            if each:
                self.put(("roles", role, key), *each)

    def note(self, path: Path, note: str) -> None:
        """Say why something is as it is, where it will be written."""
        self.notes.setdefault(path, []).append(note)

    def add_problem(self, location: Location, message: str) -> None:
        """Note what makes a run impossible."""
        self.problems.append(location.problem(message))

    @contextmanager
    def collecting_problems(self) -> Iterator[None]:
        """Note the problems of a SpecError, and go on: one mistake does not hide the next."""
        try:
            yield
        except SpecError as error:
            self.problems += error.problems

    def warn(self, location: Location, message: str) -> None:
        """Note what is not carried over, or otherwise than it was: it is said whenever the file is read."""
        self._warnings.append(location.problem(message))

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What was noted so, in the order of the lines."""
        return tuple(sorted(self._warnings, key=lambda warning: (warning.source, warning.line or 0)))

    def tree(self) -> document.Mapping:
        """The spec as if it had been read, its lines those of the dialect's file."""
        ranked = {key: self.values[key] for key in sorted(self.values, key=_rank)}
        root = self._node(ranked, ())
        assert isinstance(root, document.Mapping)
        return root

    def all_locations(self) -> dict[Path, Location]:
        """Where each value was said, and each block: where its first value was."""
        locations: dict[Path, Location] = {(): self.location}
        for path, location in self.locations.items():
            for end in range(1, len(path)):
                locations.setdefault(path[:end], location)
        return {**locations, **self.locations}

    def _node(self, value: Any, path: Path) -> Node:
        if not isinstance(value, dict):
            node: Node = value
            return node
        entries = tuple(
            Entry(key, self._line(child, (*path, key)), self._node(child, (*path, key))) for key, child in value.items()
        )
        return document.Mapping(entries, min((entry.line for entry in entries), default=self.location.line))

    def _line(self, value: Any, path: Path) -> int:
        if path in self.locations:
            return self.locations[path].line
        inner = (self._line(child, (*path, key)) for key, child in value.items()) if isinstance(value, dict) else ()
        return min(inner, default=self.location.line)


def node_of(value: object, line: int) -> Node:
    """Plain data as a node of this line; nodes, also deep inside, stay as they are."""
    match value:
        case Scalar() | Sequence() | document.Mapping():
            return value
        case Mapping():
            entries = (Entry(str(key), line, node_of(each, line)) for key, each in value.items())
            return document.Mapping(tuple(entries), line)
        case list() | tuple():
            return Sequence(tuple(node_of(each, line) for each in value), line)
        case str():
            return Scalar(value, plain=False, line=line)
        case bool() | None:
            return Scalar({True: "true", False: "false", None: ""}[value], plain=True, line=line)
        case _:
            return Scalar(f"{value}", plain=True, line=line)


def plain(node: Node) -> Any:
    """What a node stands for, as plain data."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(item) for item in node.items]
        case document.Mapping():
            return {entry.key: plain(entry.node) for entry in node.entries}


def lines_of(node: Node, path: Path = ()) -> Iterator[tuple[Path, int]]:
    """Every path below a node with the line of its key, or of the item."""
    match node:
        case document.Mapping():
            for entry in node.entries:
                yield (*path, entry.key), entry.line
                yield from lines_of(entry.node, (*path, entry.key))
        case Sequence():
            for index, item in enumerate(node.items):
                yield (*path, index), item.line
                yield from lines_of(item, (*path, index))
        case _:
            pass


def _rank(key: str) -> int:
    return _ORDER.index(key) if key in _ORDER else len(_ORDER)
