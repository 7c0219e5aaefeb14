"""Objects of a cluster, read key by key: whatever nobody has taken in the end is known with its line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drumline.errors import SpecError
from drumline.spec import document
from drumline.spec.dialect.draft import NOT_CARRIED, Draft, plain
from drumline.spec.document import Node, Scalar, Sequence
from drumline.spec.quantity import parse_quantity
from drumline.spec.spot import Spot
from drumline.spec.words import found


def objects(root: Node, source: str) -> Iterator[Part]:
    """The objects of a document: itself, or those of a list, as `kubectl get -o yaml` prints several."""
    whole = Part(root, Spot(source, root.line))
    kind = whole.take("kind")
    if "items" not in whole.keys or (kind and not kind.text().endswith("List")):
        yield whole
        return
    items = whole.need("items").items()
    if not items:
        raise whole.need("items").refuse("lists nothing")
    yield from items


def lose_rest(draft: Draft, *parts: Part) -> None:
    """Note of everything in these that nothing has taken that it is not carried over."""
    for rest in (rest for part in parts for rest in part.left()):
        draft.lose(rest.spot, NOT_CARRIED)


class Part:
    """A value and where it stands; of a mapping, it knows which keys were asked for."""

    def __init__(self, node: Node, spot: Spot) -> None:
        self.node = node
        self.spot = spot
        self._taken: dict[str, Part] = {}
        self._items: list[Part] | None = None

    def refuse(self, message: str) -> SpecError:
        """The error that says this about it."""
        return SpecError([self.spot.problem(message)])

    @property
    def value(self) -> Any:
        """As plain data."""
        return plain(self.node)

    @property
    def keys(self) -> list[str]:
        """The keys of a mapping, in the order of the file."""
        return [entry.key for entry in self._mapping().entries]

    def take(self, key: str) -> Part | None:
        """What stands at a key, which counts as carried over from now on; None for nothing."""
        for entry in self._mapping().entries if key not in self._taken else ():
            if entry.key == key:
                self._taken[key] = Part(entry.node, Spot(self.spot.source, entry.line, (*self.spot.path, key)))
        found = self._taken.get(key)
        is_null = found and isinstance(found.node, Scalar) and found.node.value is None
        return None if is_null else found

    def need(self, key: str) -> Part:
        """What stands at a key that has to be there."""
        part = self.take(key)
        if part is None:
            raise Part(self.node, Spot(self.spot.source, self.spot.line, (*self.spot.path, key))).refuse("is missing")
        return part

    @property
    def is_done(self) -> bool:
        """Whether somebody has taken all of it."""
        return all(key in self._taken for key in self.keys)

    def left(self) -> Iterator[Part]:
        """What nobody has taken yet, which is taken by it."""
        for key in self.keys:
            if key not in self._taken and (part := self.take(key)):
                yield part

    def items(self) -> list[Part]:
        """The items of a list."""
        if not isinstance(self.node, Sequence):
            raise self.refuse(f"expected a list, got {found(self.node)}")
        if self._items is None:
            spots = (
                Spot(self.spot.source, each.line, (*self.spot.path, at)) for at, each in enumerate(self.node.items)
            )
            self._items = [Part(item, spot) for item, spot in zip(self.node.items, spots, strict=True)]
        return self._items

    def text(self) -> str:
        """A word, a number or a line, as it was typed."""
        if not isinstance(self.node, Scalar):
            raise self.refuse(f"expected text, got {found(self.node)}")
        return self.node.text

    def whole(self) -> int:
        """A whole number that is not negative."""
        if not isinstance(self.node, Scalar) or not self.node.text.isdecimal() or len(self.node.text) > 10:
            raise self.refuse(f"expected a whole number, got {found(self.node)}")
        return int(self.node.text)

    def is_true(self) -> bool:
        """Whether it says true."""
        if not isinstance(self.node, Scalar) or not isinstance(self.node.value, bool):
            raise self.refuse(f"expected true or false, got {found(self.node)}")
        return self.node.value

    def quantity(self) -> float:
        """An amount as clusters write it: `500m`, `16Gi`, `1e9`."""
        amount = parse_quantity(self.node.text) if isinstance(self.node, Scalar) else None
        if amount is None:
            raise self.refuse(f"expected an amount such as 2, 500m or 16Gi, got {found(self.node)}")
        return amount

    def _mapping(self) -> document.Mapping:
        if not isinstance(self.node, document.Mapping):
            raise self.refuse(f"expected a mapping, got {found(self.node)}")
        return self.node
