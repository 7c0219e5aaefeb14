"""Frozen values with named fields: equal only to a value of the same type, always true, accessed by name only.

This module imports only the standard library, since hosts and pods use records too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, dataclass_transform


def _annotations(namespace: dict[str, Any]) -> Mapping[str, object]:
    found: Mapping[str, object] = namespace.get("__annotations__", {})
    if sys.version_info >= (3, 14) and not found:  # annotations are evaluated lazily
        import annotationlib  # noqa: PLC0415

        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        found = annotationlib.call_annotate_function(annotate, annotationlib.Format.FORWARDREF) if annotate else {}
    return found


@dataclass_transform(frozen_default=True)
class RecordType(type):
    """Make a class of records from the annotations and defaults in a class body."""

    __match_args__: tuple[str, ...]
    __defaults__: Mapping[str, object]
    __values__: Callable[[object], tuple[object, ...]]  # of all fields, in their order

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> RecordType:
        """Turn every annotated name into a field, with the value in the class body as its default."""
        fields = tuple(_annotations(namespace))
        if any(getattr(base, "__match_args__", ()) for base in bases):
            if fields:
                raise TypeError(f"{name}: a subclass of a record adds no fields")
            return super().__new__(cls, name, bases, {**namespace, "__slots__": ()})
        defaults = {field: namespace.pop(field) for field in fields if field in namespace}
        if tuple(defaults) != fields[len(fields) - len(defaults) :]:
            raise TypeError(f"{name}: a field without a default follows one with a default")
        made = super().__new__(cls, name, bases, {**namespace, "__slots__": fields, "__match_args__": fields})
        made.__defaults__ = defaults
        made.__values__ = (
            attrgetter(*fields) if len(fields) > 1 else lambda each: tuple(getattr(each, n) for n in fields)
        )
        return made


class Record(metaclass=RecordType):
    """The base class of all records; `__init__` takes the fields by position or by name."""

    def __init__(self, *values: Any, **named: Any) -> None:
        # Compiled for the first instance: a command imports many record classes, and creates instances of only a few.
        kind: Any = type(self)
        kind.__init__ = _compile_init(kind)
        kind.__init__(self, *values, **named)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with new values for these fields; raise TypeError for a name that is not a field."""
        kind = type(self)
        changed = kind(*map(changes.pop, kind.__match_args__, kind.__values__(self)))
        if changes:
            raise TypeError(f"{kind.__name__} has no field {min(changes)!r}")
        return changed

    if TYPE_CHECKING:  # hides `__eq__`, so that the type checker rejects comparisons with other types

        def __bool__(self) -> Literal[True]: ...  # like every object without a length
    else:

        def __eq__(self, other: object) -> bool:
            kind = type(self)
            return kind.__values__(self) == kind.__values__(other) if kind is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(type(self).__values__(self))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in to_dict(self).items())
        return f"{type(self).__qualname__}({fields})"

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), type(self).__values__(self)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: {name!r} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: {name!r} cannot be deleted")


def field_names(kind: type[Record]) -> tuple[str, ...]:
    """Return the names of the fields, in their order."""
    return kind.__match_args__


def field_defaults(kind: type[Record]) -> Mapping[str, object]:
    """Return the defaults of the fields that have one."""
    return kind.__defaults__


def to_dict(record: Record) -> dict[str, Any]:
    """Return the fields by name; values that are records stay records."""
    kind = type(record)
    return dict(zip(kind.__match_args__, kind.__values__(record), strict=True))


def _compile_init(kind: RecordType) -> Callable[..., None]:
    """Return an `__init__` that sets the slots of this class, with one parameter for each field."""
    scope: dict[str, Any] = {f"_default_{name}": value for name, value in kind.__defaults__.items()}
    scope |= {f"_set_{name}": getattr(kind, name).__set__ for name in kind.__match_args__}
    parameters = (f"{name}=_default_{name}" if name in kind.__defaults__ else name for name in kind.__match_args__)
    body = (f" _set_{name}(self, {name})" for name in kind.__match_args__)
    exec("\n".join((f"def __init__({', '.join(('self', *parameters))}):", *body, " return")), scope)
    compiled: Callable[..., None] = scope["__init__"]
    compiled.__qualname__ = f"{kind.__qualname__}.__init__"
    return compiled
