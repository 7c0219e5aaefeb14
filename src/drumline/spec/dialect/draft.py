"""A draft of a spec: the values that a file in a dialect is translated to, each with its location in that file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from drumline.errors import Problem, SpecError
from drumline.spec import document
from drumline.spec.document import Entry, Node, Path, Scalar, Sequence
from drumline.spec.location import Location

# The order of keys in a spec that is written by hand.
_ORDER = (
    *("project", "name", "framework", "tensorflow", "environment", "roles", "parameters", "run", "resources", "port"),
    *("env", "workdir", "output", "checkpoint", "data", "restart", "timeouts", "success", "tensorboard", "engine"),
)


ROLES = {"chief": "chief", "master": "chief", "worker": "worker", "ps": "ps", "evaluator": "evaluator"}
NOT_CARRIED = "is not carried over"
LocatedValue = tuple[object, Location]  # a value and its location in the file that is translated


class SpecDraft:
    """Collects the values of a spec, notes about decisions, and warnings about what could not be carried over."""

    def __init__(self, dialect: str, location: Location) -> None:
        self.dialect = dialect
        self.location = location
        self.values: dict[str, Any] = {}
        self.locations: dict[Path, Location] = {}
        self.notes: dict[Path, list[str]] = {}
        self.problems: list[Problem] = []
        self._warnings: list[Problem] = []

    def put(self, path: Path, value: object, location: Location, note: str = "") -> None:
        """Set a value of the spec; `location` is the place in the file that it comes from, `note` a comment for it."""
        inside = self.values
        for part in path[:-1]:
            inside = inside.setdefault(str(part), {})
        inside[str(path[-1])] = node_of(value, location.line)
        self.locations[path] = location
        if note:
            self.note(path, note)

    def put_by_role(self, key: str, values: Mapping[str, LocatedValue | None]) -> None:
        """Set a key by role; set it once for all roles if they have the same value."""
        first, *others = values.values()
        if first and all(each and each[0] == first[0] for each in others):
            self.put((key,), *first)
            return
        for role, each in values.items():
            if each:
                self.put(("roles", role, key), *each)

    def note(self, path: Path, note: str) -> None:
        """Add a comment to a key of the spec."""
        self.notes.setdefault(path, []).append(note)

    def add_problem(self, location: Location, message: str) -> None:
        """Add a problem that stops the spec from running."""
        self.problems.append(location.problem(message))

    @contextmanager
    def collecting_problems(self) -> Iterator[None]:
        """Add the problems of a SpecError that is raised in the block, instead of raising it."""
        try:
            yield
        except SpecError as error:
            self.problems += error.problems

    def warn(self, location: Location, message: str) -> None:
        """Add a warning about what is not carried over, or is carried over with a difference."""
        self._warnings.append(location.problem(message))

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Return the warnings, ordered by line."""
        return tuple(sorted(self._warnings, key=lambda warning: (warning.source, warning.line or 0)))

    def tree(self) -> document.Mapping:
        """Return the spec as a document with the lines of the dialect's file."""
        ranked = {key: self.values[key] for key in sorted(self.values, key=_rank)}
        root = self._node(ranked, ())
        assert isinstance(root, document.Mapping)
        return root

    def all_locations(self) -> dict[Path, Location]:
        """Return the location of each value, and for each block that of its first value."""
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
    """Return plain data as a node at this line; nodes inside it stay as they are."""
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
    """Return a node as plain data."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(item) for item in node.items]
        case document.Mapping():
            return {entry.key: plain(entry.node) for entry in node.entries}


def lines_of(node: Node, path: Path = ()) -> Iterator[tuple[Path, int]]:
    """Yield every path below a node with the line of its key or item."""
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
