"""Hosts of which nobody could say whether anything of a run is left there, and until when that can be."""

from __future__ import annotations

from collections.abc import Iterable

from drumline.record import Record


class UnverifiedHost(Record):
    """A host that could not be asked; by the time of `until`, whatever lived there has ended by its lease."""

    host: str
    until: float | None = None  # seconds since 1970; None while the host may still be spoken to, or without a lease
    lease_seconds: float | None = None  # None: without a lease


def unverified_from_text(text: str) -> list[UnverifiedHost]:
    """Read a line for each host: its name, and the time if there is one."""
    words = [line.split() for line in text.splitlines() if line.strip()]
    return [UnverifiedHost(host, float(until[0]) if until else None) for host, *until in words]


def unverified_to_text(doubts: Iterable[UnverifiedHost]) -> str:
    """Write them down."""
    lines = (each.host if each.until is None else f"{each.host} {each.until:.0f}" for each in doubts)
    return "".join(f"{line}\n" for line in sorted(lines))
