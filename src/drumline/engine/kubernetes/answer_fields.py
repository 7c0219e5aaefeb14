"""Read fields of an answer as the expected types, whatever was sent. Pure.

An answer of the API server contains what pods, nodes and other users of the namespace have written. A value of another
type counts as absent, and a text becomes one line of printable characters, up to a limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from drumline.words import printable

LONGEST_TEXT = 1024  # the limit of Kubernetes for the note of an event
_NUMBER = re.compile(r"[0-9]{1,9}")


def mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings of a list; an empty list for anything else."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


def text(value: object, *, longest: int = LONGEST_TEXT) -> str:
    """Return a text in one line, truncated and escaped; empty for anything else."""
    if not isinstance(value, str):
        return ""
    cut = value[:longest].strip()
    return printable(f"{cut} …" if len(value.strip()) > longest else cut)


def name(value: object) -> str:
    """Return an object's name; empty for anything that cannot be one."""
    return value if isinstance(value, str) and len(value) <= 253 and "/" not in value and value.isprintable() else ""


def integer(value: object) -> int | None:
    """Return an integer of at most 64 bits; None for anything else."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and -(1 << 63) <= value < 1 << 63 else None  # type: ignore[operator,return-value]


def label_number(value: object, default: int = 0) -> int | None:
    """Return the number in a label; the default if there is no label, None if it is not a number."""
    if value is None:
        return default
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def seconds_of(moment: object) -> float | None:
    """Return a time of the API as UTC seconds; None for its zero and for anything else."""
    if not isinstance(moment, str):
        return None
    try:
        at = datetime.fromisoformat(moment).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return at if at > 0 else None
