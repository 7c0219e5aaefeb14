"""Objects of a cluster, read key by key: whatever nobody has taken in the end is known with its line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drumline.errors import SpecError
from drumline.spec import document
from drumline.spec.dialect.draft import NOT_CARRIED, SpecDraft, plain
from drumline.spec.document import Node, Scalar, Sequence
from drumline.spec.location import Location
from drumline.spec.messages import describe_node
from drumline.spec.quantity import parse_quantity


def read_objects(root: Node, source: str) -> Iterator[TrackedNode]:
    """The objects of a document: itself, or those of a list, as `kubectl get -o yaml` prints several."""
    integer = TrackedNode(root, Location(source, root.line))
    kind = integer.read("kind")
    if "items" not in integer.keys or (kind and not kind.text().endswith("List")):
        yield integer
        return
    items = integer.require("items").items()
    if not items:
        raise integer.require("items").error("lists nothing")
    yield from items


def warn_unread(draft: SpecDraft, *parts: TrackedNode) -> None:
    """Note of everything in these that nothing has taken that it is not carried over."""
    for rest in (rest for part in parts for rest in part.unread()):
        draft.warn(rest.location, NOT_CARRIED)


class TrackedNode:
    """A value and where it stands; of a mapping, it knows which keys were asked for."""

    def __init__(self, node: Node, location: Location) -> None:
        self.node = node
        self.location = location
        self._taken: dict[str, TrackedNode] = {}
        self._items: list[TrackedNode] | None = None

    def error(self, message: str) -> SpecError:
        """The error that says this about it."""
        return SpecError([self.location.problem(message)])

    @property
    def value(self) -> Any:
        """As plain data."""
        return plain(self.node)

    @property
    def keys(self) -> list[str]:
        """The keys of a mapping, in the order of the file."""
        return [entry.key for entry in self._mapping().entries]

    def read(self, key: str) -> TrackedNode | None:
        """What stands at a key, which counts as carried over from now on; None for nothing."""
        for entry in self._mapping().entries if key not in self._taken else ():
            if entry.key == key:
                self._taken[key] = TrackedNode(
                    entry.node, Location(self.location.source, entry.line, (*self.location.path, key))
                )
        found = self._taken.get(key)
        is_null = found and isinstance(found.node, Scalar) and found.node.value is None
        return None if is_null else found

    def require(self, key: str) -> TrackedNode:
        """What stands at a key that has to be there."""
        part = self.read(key)
        if part is None:
            raise TrackedNode(
                self.node, Location(self.location.source, self.location.line, (*self.location.path, key))
            ).error("is missing")
        return part

    @property
    def is_read(self) -> bool:
        """Whether somebody has taken all of it."""
        return all(key in self._taken for key in self.keys)

    def unread(self) -> Iterator[TrackedNode]:
        """What nobody has taken yet, which is taken by it."""
        for key in self.keys:
            if key not in self._taken and (part := self.read(key)):
                yield part

    def items(self) -> list[TrackedNode]:
        """The items of a list."""
        if not isinstance(self.node, Sequence):
            raise self.error(f"expected a list, got {describe_node(self.node)}")
        if self._items is None:
            locations = (
                Location(self.location.source, each.line, (*self.location.path, at))
                for at, each in enumerate(self.node.items)
            )
            self._items = [
                TrackedNode(item, location) for item, location in zip(self.node.items, locations, strict=True)
            ]
        return self._items

    def text(self) -> str:
        """A word, a number or a line, as it was typed."""
        if not isinstance(self.node, Scalar):
            raise self.error(f"expected text, got {describe_node(self.node)}")
        return self.node.text

    def integer(self) -> int:
        """A whole number that is not negative."""
        if not isinstance(self.node, Scalar) or not self.node.text.isdecimal() or len(self.node.text) > 10:
            raise self.error(f"expected a whole number, got {describe_node(self.node)}")
        return int(self.node.text)

    def boolean(self) -> bool:
        """Whether it says true."""
        if not isinstance(self.node, Scalar) or not isinstance(self.node.value, bool):
            raise self.error(f"expected true or false, got {describe_node(self.node)}")
        return self.node.value

    def quantity(self) -> float:
        """An amount as clusters write it: `500m`, `16Gi`, `1e9`."""
        amount = parse_quantity(self.node.text) if isinstance(self.node, Scalar) else None
        if amount is None:
            raise self.error(f"expected an amount such as 2, 500m or 16Gi, got {describe_node(self.node)}")
        return amount

    def _location(self, line: int, key: str | int) -> Location:
        return Location(self.location.source, line, (*self.location.path, key))

    def _mapping(self) -> document.Mapping:
        if not isinstance(self.node, document.Mapping):
            raise self.error(f"expected a mapping, got {describe_node(self.node)}")
        return self.node
