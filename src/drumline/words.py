"""Numbers and lists as people say them."""

from __future__ import annotations

from collections.abc import Sequence


def count(number: int, noun: str) -> str:
    """`1 worker`, `3 workers`, `2 ps`."""
    return f"{number:,} {noun}" if number == 1 or noun.endswith("s") else f"{number:,} {noun}s"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
