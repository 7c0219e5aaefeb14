"""Hosts of which nobody could say whether anything of a run is left there, and until when that can be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Doubt(NamedTuple):
    """A host that could not be asked; by the time of `until`, whatever lived there has ended by its lease."""

    host: str
    until: float | None = None  # seconds since 1970; None while the host may still be spoken to, or without a lease


def doubts_from_text(text: str) -> list[Doubt]:
    """Read a line for each host: its name, and the time if there is one."""
    words = [line.split() for line in text.splitlines() if line.strip()]
    return [Doubt(host, float(until[0]) if until else None) for host, *until in words]


def doubts_to_text(doubts: Iterable[Doubt]) -> str:
    """Write them down."""
    return "".join(f"{host}\n" if until is None else f"{host} {until:.0f}\n" for host, until in sorted(doubts))
