"""Read data from another machine: within limits and into types, or raise ValueError.

All data from a host passes through `load_json`. After it, no number is NaN, infinite or too large for a file format,
and every string can be written as UTF-8.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from drumline.plan.codec import from_data

T = TypeVar("T")

TEXT_CHARS = 2000  # of a message that is shown
_PATH_CHARS = 4096
MOST_VALUES = 1 << 19  # in a message; a value may take two bytes in it, and tens of bytes in memory
_DEPTH = 32
_INTEGERS = 1 << 63
_LATEST = 1e11  # seconds since 1970; no other fraction in a message is larger
_SURROGATES = re.compile("[\ud800-\udfff]")
# All surrogates except those by which `os.fsdecode` represents bytes that are not UTF-8.
_NOT_OF_NAMES = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def load_json(data: bytes, *, most_values: int = MOST_VALUES, signed: bool = False, names: bool = False) -> Any:
    """Parse JSON; raise ValueError if it is damaged, too deep, or has too many values or numbers out of range.

    Negative numbers are refused unless `signed`. Lone surrogates are replaced; with `names`, strings may be names of
    files: the surrogates of `os.fsdecode` stay, and others are refused.
    """
    if data.count(b",") + data.count(b"[") + data.count(b"{") > most_values:
        raise ValueError("too many values")
    try:
        value = json.loads(data.decode(errors="replace"), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _checked(value, _DEPTH, signed=signed, text=_require_name if names else _replace_surrogates)


def load_record(kind: type[T], data: Any) -> T:
    """Build a record from a result of `load_json`; raise ValueError if it does not match this type."""
    try:
        return from_data(kind, data)
    except (TypeError, ValueError) as error:
        raise ValueError(clean_text(str(error), 200)) from None


def clean_text(text: str, most_chars: int = TEXT_CHARS) -> str:
    """Return the text as valid Unicode, truncated to this length."""
    text = text if len(text) <= most_chars else f"{text[: most_chars - 1]}…"
    return _replace_surrogates(text)


def last_line(text: str) -> str:
    """Return the last line of a command's stderr, "no message" if it is empty."""
    lines = text.strip().splitlines()
    return clean_text(lines[-1].strip()) if lines else "no message"


def require_path(path: str | None) -> None:
    """Raise ValueError unless this is an absolute path that a system call accepts, or None."""
    if path is not None and (not path.startswith("/") or len(path) > _PATH_CHARS or not path.isprintable()):
        raise ValueError(f"not an absolute path: {path[:100]!r}")


def require_within(value: int | None, lowest: int, highest: int) -> None:
    """Raise ValueError unless this number is in the range, or None."""
    if value is not None and not lowest <= value <= highest:
        raise ValueError(f"{value} is not between {lowest} and {highest}")


def _checked(value: Any, depth: int, *, signed: bool, text: Callable[[str], str]) -> Any:
    if not depth:
        raise ValueError("nested too deeply")
    match value:
        case str():
            return text(value)
        case bool() | None:
            return value
        case int():
            require_within(value, -_INTEGERS if signed else 0, _INTEGERS - 1)
            return value
        case float():
            if not math.isfinite(value) or not (-_LATEST if signed else 0.0) <= value < _LATEST:
                raise ValueError(f"{value} is out of range")
            return value
        case list():
            for at, each in enumerate(value):  # in place: a second copy would take as much memory again
                value[at] = _checked(each, depth - 1, signed=signed, text=text)
            return value
        case dict():
            items = value.items()
            return {text(name): _checked(each, depth - 1, signed=signed, text=text) for name, each in items}
    raise AssertionError(type(value))


def _replace_surrogates(text: str) -> str:
    return _SURROGATES.sub("\ufffd", text)


def _require_name(text: str) -> str:
    if _NOT_OF_NAMES.search(text):
        raise ValueError("text that is not Unicode")
    return text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")
