"""Records: frozen values that are equal to values of their own type only, and have their fields by name."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import drumline
from drumline.record import Record, RecordType, field_defaults, field_names, to_dict


class Empty(Record):
    """A record without fields."""


class Other(Record):
    """Another one."""


class Point(Record):
    """A record with a default, a method and a constant."""

    x: int
    y: int = 2
    names: Mapping[str, str] = MappingProxyType({})

    UNIT = "cm"

    @property
    def sum(self) -> int:
        return self.x + self.y


class Place(Record):
    x: int
    y: int = 2
    names: Mapping[str, str] = MappingProxyType({})


class One(Record):
    x: object


ANY: Any = Point(1)


def test_fields_are_given_by_position_or_by_name() -> None:
    assert Point(1, 3) == Point(x=1, y=3) == Point(1, y=3)
    assert (Point(1).x, Point(1).y, Point(1).names, Point(1).sum, Point(1).UNIT) == (1, 2, {}, 3, "cm")


def test_only_values_of_the_same_type_are_equal() -> None:
    unlike: list[tuple[Any, Any]] = [
        (Point(1), Place(1)),
        (Empty(), Other()),
        (Point(1), (1, 2, {})),
        (One(1), 1),
        (Empty(), None),
    ]
    assert all(one != other for one, other in unlike)
    assert Point(1) != Point(2)
    assert Empty() == Empty()
    assert One(1) == One(1)


def test_a_record_is_always_true() -> None:
    assert all((Empty(), One(None), Point(0, 0)))


@pytest.mark.parametrize(
    "use",
    [
        len,
        iter,
        sorted,
        lambda record: record[0],
        lambda record: record[:1],
        lambda record: 1 in record,
        lambda record: record < Point(2),
        lambda record: [*record],
    ],
)
def test_a_record_is_no_sequence(use: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError):
        use(Point(1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: setattr(ANY, "x", 2), "Point is frozen: 'x' cannot be set"),
        (lambda: setattr(ANY, "z", 2), "Point is frozen: 'z' cannot be set"),
        (lambda: delattr(ANY, "x"), "Point is frozen: 'x' cannot be deleted"),
    ],
)
def test_a_record_cannot_be_changed(change: Callable[[], object], message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        change()
    assert Point(1) == ANY
    assert not hasattr(ANY, "__dict__")


def test_equal_records_have_the_same_hash() -> None:
    assert hash(One(1)) == hash(One(1))
    assert {One(1): "a", Empty(): "b"}[One(1)] == "a"
    assert len({Empty(), Empty(), Other()}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(One([]))


def test_a_record_is_shown_as_it_can_be_written() -> None:
    assert repr(One("a")) == "One(x='a')"
    assert repr(Empty()) == "Empty()"
    assert repr(One(One(None))) == "One(x=One(x=None))"


def test_a_changed_copy_keeps_the_other_fields() -> None:
    before = Point(1, names={"a": "b"})
    assert before.replace(y=5) == Point(1, 5, {"a": "b"})
    assert before.replace() == before == Point(1, 2, {"a": "b"})
    with pytest.raises(TypeError, match="Point has no field 'z'"):
        before.replace(z=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda kind: kind(), r"Point\.__init__\(\) missing 1 required positional argument: 'x'"),
        (
            lambda kind: kind(1, 2, {}, 4),
            r"Point\.__init__\(\) takes from 2 to 4 positional arguments",
        ),
        (lambda kind: kind(1, z=3), r"Point\.__init__\(\) got an unexpected keyword argument 'z'"),
        (lambda kind: kind(1, x=3), r"Point\.__init__\(\) got multiple values for argument 'x'"),
    ],
)
def test_wrong_fields_are_a_type_error(make: Callable[[Any], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(Point)


def test_a_record_is_matched_by_position_and_by_name() -> None:
    match Point(1, 3):
        case Point(x, y=3):
            assert x == 1
        case _:
            pytest.fail("not matched")


def test_a_record_is_copied_and_pickled() -> None:
    point = Point(1, names={"a": "b"})
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
    assert pickle.loads(pickle.dumps(Empty())) == Empty()


def test_fields_and_defaults_can_be_asked_for() -> None:
    assert field_names(Point) == ("x", "y", "names")
    assert field_names(Empty) == ()
    assert field_defaults(Point) == {"y": 2, "names": {}}
    assert to_dict(Point(1)) == {"x": 1, "y": 2, "names": {}}
    assert to_dict(One(One(1))) == {"x": One(1)}
    assert to_dict(Empty()) == {}


def test_a_field_without_a_default_comes_first() -> None:
    with pytest.raises(TypeError, match="Wrong: a field without a default follows one with a default"):
        RecordType("Wrong", (Record,), {"__annotations__": {"x": int, "y": int}, "x": 1})


def test_a_subclass_adds_behaviour_and_no_fields() -> None:
    class Shown(Point):
        def __str__(self) -> str:
            return f"{self.x}/{self.y}"

    assert str(Shown(1)) == "1/2"
    assert Shown(1).replace(x=2) == Shown(2)
    assert Point(1) != Shown(1)
    with pytest.raises(TypeError, match="More: a subclass of a record adds no fields"):
        RecordType("More", (Point,), {"__annotations__": {"z": int}})


def test_annotations_that_are_no_text_name_fields_too() -> None:
    scope: dict[str, Any] = {"Record": Record}
    exec(compile("class Pair(Record):\n    x: int\n    y: int = 2\n", "pair.py", "exec", dont_inherit=True), scope)
    assert to_dict(scope["Pair"](1)) == {"x": 1, "y": 2}


def test_records_need_few_modules() -> None:
    source = Path(drumline.__file__).parents[1]
    code = f"import sys; sys.path.insert(0, {str(source)!r}); import drumline.record; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code], check=True, capture_output=True, text=True)
    assert {"dataclasses", "inspect", "msgspec"}.isdisjoint(done.stdout.split())
