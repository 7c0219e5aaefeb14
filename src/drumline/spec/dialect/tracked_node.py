"""Read Kubernetes objects key by key, and list the keys that were not read, with their lines."""

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
    """Yield the objects of a document: the document itself, or the items of a List."""
    document_node = TrackedNode(root, Location(source, root.line))
    kind = document_node.read("kind")
    if "items" not in document_node.keys or (kind and not kind.text().endswith("List")):
        yield document_node
        return
    items = document_node.require("items").items()
    if not items:
        raise document_node.require("items").error("is empty")
    yield from items


def warn_unread(draft: SpecDraft, *parts: TrackedNode) -> None:
    """Add a warning for every key of these nodes that was not read: it is not carried over."""
    for rest in (rest for part in parts for rest in part.unread()):
        draft.warn(rest.location, NOT_CARRIED)


class TrackedNode:
    """A value with its location; of a mapping, it records which keys were read."""

    def __init__(self, node: Node, location: Location) -> None:
        self.node = node
        self.location = location
        self._read: dict[str, TrackedNode] = {}
        self._items: list[TrackedNode] | None = None

    def error(self, message: str) -> SpecError:
        """Return an error about this node."""
        return SpecError([self.location.problem(message)])

    @property
    def value(self) -> Any:
        """Return the node as plain data."""
        return plain(self.node)

    @property
    def keys(self) -> list[str]:
        """Return the keys of a mapping, in the order of the file."""
        return [entry.key for entry in self._mapping().entries]

    def read(self, key: str) -> TrackedNode | None:
        """Return the value of a key and record the key as read; None if it has no value."""
        for entry in self._mapping().entries if key not in self._read else ():
            if entry.key == key:
                self._read[key] = TrackedNode(
                    entry.node, Location(self.location.source, entry.line, (*self.location.path, key))
                )
        found = self._read.get(key)
        is_null = found and isinstance(found.node, Scalar) and found.node.value is None
        return None if is_null else found

    def require(self, key: str) -> TrackedNode:
        """Return the value of a key; raise SpecError if it has none."""
        part = self.read(key)
        if part is None:
            raise TrackedNode(
                self.node, Location(self.location.source, self.location.line, (*self.location.path, key))
            ).error("is missing")
        return part

    @property
    def is_read(self) -> bool:
        """Return whether all keys were read."""
        return all(key in self._read for key in self.keys)

    def unread(self) -> Iterator[TrackedNode]:
        """Yield the values of keys that were not read yet, and record them as read."""
        for key in self.keys:
            if key not in self._read and (part := self.read(key)):
                yield part

    def items(self) -> list[TrackedNode]:
        """Return the items of a list; raise SpecError if it is not a list."""
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
        """Return a scalar as the file spells it; raise SpecError if it is not a scalar."""
        if not isinstance(self.node, Scalar):
            raise self.error(f"expected text, got {describe_node(self.node)}")
        return self.node.text

    def integer(self) -> int:
        """Return a non-negative integer; raise SpecError if it is none."""
        if not isinstance(self.node, Scalar) or not self.node.text.isdecimal() or len(self.node.text) > 10:
            raise self.error(f"expected a whole number, got {describe_node(self.node)}")
        return int(self.node.text)

    def boolean(self) -> bool:
        """Return a boolean; raise SpecError if it is none."""
        if not isinstance(self.node, Scalar) or not isinstance(self.node.value, bool):
            raise self.error(f"expected true or false, got {describe_node(self.node)}")
        return self.node.value

    def quantity(self) -> float:
        """Return a Kubernetes quantity such as `500m`, `16Gi` or `1e9`; raise SpecError if it is none."""
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
