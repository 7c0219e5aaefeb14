"""Convert records to JSON and back, among them the plan of a run, which is written into the run's folder.

A plan is written with every field, so that its meaning does not change if a default changes. In other records, a field
is left out if both its value and its default are None, False, zero or empty: such defaults never change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from drumline.errors import EngineError
from drumline.plan.types import Plan, ReplicaId, Secret
from drumline.plan.version1 import ABSENT, upgraded
from drumline.record import Record, field_defaults, to_dict

VERSION = 2
_MOST = 1 << 63  # no size in bytes and no time in seconds is so large

T = TypeVar("T")


Absent = Mapping[str, Mapping[str, object]]  # the values of absent fields, by record and field
_Read = Callable[[Any, Absent | None, bool], Any]


def plan_to_json(plan: Plan) -> str:
    """Return a plan as JSON, with the names of secrets, but not their values."""
    return json.dumps({"v": VERSION, **cast("dict[str, Any]", to_data(plan, whole=True))}, ensure_ascii=False)


def plan_from_json(text: str) -> Plan:
    """Read a plan of this version or an older one; raise ValueError if this version cannot read it."""
    try:
        data = json.loads(text)
        version = data.pop("v", None) if isinstance(data, dict) else None
        if version not in (1, VERSION):
            raise ValueError(f"not a plan of version {VERSION} or older")
        _check_values(data)
        return from_data(Plan, upgraded(data), absent=ABSENT) if version == 1 else from_data(Plan, data, absent={})
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not a plan: {error}") from error


def to_options(record: Record) -> Mapping[str, object]:
    """Return the options record of an engine as JSON data for a plan."""
    return cast("dict[str, object]", to_data(record, whole=True))


def read_options(kind: type[T], options: Mapping[str, object]) -> T:
    """Return the options of a plan as the options record of its engine; an absent field has its default.

    Raise EngineError for the options of another engine. The result is cached for each plan.
    """
    return cast("T", _read_options(cast("Any", kind), _ByIdentity(options)))


class _ByIdentity:
    """A key that compares its value by identity."""

    def __init__(self, value: Mapping[str, object]) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@lru_cache(maxsize=16)
def _read_options(kind: Any, options: _ByIdentity) -> object:
    try:
        return from_data(kind, dict(options.value))
    except TypeError as error:
        raise EngineError(f"the plan does not fit its engine: {error}") from error


def _check_values(data: object) -> None:
    """Raise ValueError for texts that cannot be passed to a process, and for numbers that are too large."""
    if isinstance(data, dict):
        for key, item in data.items():
            _check_values(key)
            _check_values(item)
    elif isinstance(data, list):
        for item in data:
            _check_values(item)
    elif isinstance(data, str):
        if "\0" in data:
            raise ValueError("a text with a NUL character")
        data.encode("utf-8", "surrogateescape")
    elif isinstance(data, int | float) and not abs(data) < _MOST:
        raise ValueError("a number beyond all bounds")


def to_data(value: object, *, whole: bool = False) -> object:
    """Return records as JSON data: with `whole` all fields, else without empty fields that are empty by default."""
    if isinstance(value, Secret):
        return {"from": value.variable}
    if isinstance(value, ReplicaId):
        return str(value)
    if isinstance(value, Record):
        defaults = {} if whole else field_defaults(type(value))
        items = to_dict(value).items()
        return {
            name: to_data(item, whole=whole)
            for name, item in items
            if item or name not in defaults or item != defaults[name]
        }
    if isinstance(value, Mapping):
        return {key: to_data(item, whole=whole) for key, item in value.items()}
    if isinstance(value, tuple):
        return [to_data(item, whole=whole) for item in value]
    return value


def from_data(kind: type[T], data: Any, *, absent: Absent | None = None, tolerant: bool = False) -> T:
    """Return the value of this type that `to_data` converted to this data; raise TypeError for other data.

    An absent field gets its default. With `absent`, it gets the value in `absent` instead, and is required if there is
    none. A `tolerant` reader ignores unknown fields.
    """
    return cast("T", _reader(cast("Any", kind))(data, absent, tolerant))


@cache
def _reader(kind: Any) -> _Read:
    """Return the function that reads values of this type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _union_reader(arguments)
    if kind is ReplicaId:
        return lambda data, *_: ReplicaId.parse(_checked(str, data))
    if origin is tuple:
        item = _reader(arguments[0])
        return lambda data, *how: tuple([item(each, *how) for each in _checked(list, data)])
    if origin is Mapping:
        value = _reader(arguments[1])
        return lambda data, *how: {key: value(each, *how) for key, each in _checked(dict, data).items()}
    if isinstance(kind, type) and issubclass(kind, Record):
        return _record_reader(kind)
    if kind is object:
        return lambda data, *_: data
    if kind is float:
        return lambda data, *_: float(data) if type(data) is int and abs(data) < _MOST else _checked(float, data)
    return lambda data, *_: _checked(kind, data)


def _union_reader(kinds: tuple[Any, ...]) -> _Read:
    first, optional, secret = _reader(kinds[0]), NoneType in kinds, Secret in kinds

    def read(data: Any, *how: Any) -> object:
        if data is None and optional:
            return None
        if secret and isinstance(data, dict):
            return Secret(_checked(str, data.get("from")))
        return first(data, *how)

    return read


def _record_reader(kind: type[Record]) -> _Read:
    hints = get_type_hints(kind)
    fields = {name: _reader(hint) for name, hint in hints.items()}

    def read(data: Any, absent: Absent | None, tolerant: bool) -> Record:
        data = _checked(dict, data)
        if absent is not None:
            data = {**absent.get(kind.__name__, {}), **data}
            if missing := fields.keys() - data.keys():
                raise TypeError(f"a {kind.__name__} without {min(missing)}")
        unknown = data.keys() - fields.keys()
        if unknown and not tolerant:
            raise TypeError(f"{min(unknown)} is no field of a {kind.__name__}")
        return kind(**{name: fields[name](item, absent, tolerant) for name, item in data.items() if name in fields})

    return read


def _checked(kind: type, data: Any) -> Any:
    if type(data) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {data!r}")
    return data
