"""Signatures and fields as text: protocols, functions and records."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any, get_args, get_type_hints

from drumline.record import Record, field_defaults, field_names

Lines = Iterator[tuple[str, str]]


def protocol_lines(module: ModuleType) -> Lines:
    """Yield every public method and attribute of the protocols in a module, and the fields of its records."""
    for name, kind in vars(module).items():
        if not isinstance(kind, type) or kind.__module__ != module.__name__ or name.startswith("_"):
            continue
        if issubclass(kind, Record):
            yield from record_lines(kind)
        elif getattr(kind, "_is_protocol", False):
            yield from class_lines(kind)


def class_lines(kind: type) -> Lines:
    """Yield the public methods and annotated attributes that a class defines."""
    for name, annotation in inspect.get_annotations(kind).items():
        yield f"{kind.__name__}.{name}", str(annotation)
    for name, method in vars(kind).items():
        is_made = name == "__init__" and not getattr(kind, "_is_protocol", False)
        if isinstance(method, FunctionType) and (is_made or not name.startswith("_")):
            yield f"{kind.__name__}.{name}", signature(method)


def signature(function: FunctionType) -> str:
    """Return the parameters of a function and what it returns, without `self`."""
    found = inspect.signature(function)
    parameters = [each for each in found.parameters.values() if each.name != "self"]
    text = str(found.replace(parameters=parameters)).replace("'", "").replace("mappingproxy({})", "{}")
    return f"async {text}" if inspect.iscoroutinefunction(function) else text


def record_lines(kind: type[Record], name: str = "") -> Lines:
    """Yield the fields of a record with their types and defaults."""
    name = name or kind.__name__
    if not field_names(kind):
        yield name, "no fields"
    defaults = field_defaults(kind)
    for field, annotation in inspect.get_annotations(kind).items():
        default = f" = {_default(defaults[field])}" if field in defaults else ""
        yield f"{name}.{field}", f"{_spelled(annotation)}{default}"


def inner_records(kinds: Iterable[Any]) -> dict[type[Record], None]:
    """Return the records of which these consist, without themselves, each before what it consists of."""
    found: dict[type[Record], None] = {}
    for kind in kinds:
        for annotation in get_type_hints(kind).values():
            for each in _records(annotation):
                found |= {each: None, **inner_records([each])}
    return found


def _records(annotation: Any) -> Iterator[type[Record]]:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        yield annotation
    for each in get_args(annotation):
        yield from _records(each)


def _spelled(annotation: Any) -> str:
    text = annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
    for prefix in ("drumline.plan.types.", "drumline.run.event.", "drumline.run.decision.", "collections.abc."):
        text = text.replace(prefix, "")
    return text


def _default(value: object) -> str:
    return repr(dict(value)) if isinstance(value, Mapping) else repr(value)
