"""Hosts that did not answer at the end of a run: its processes may be left on them until their leases expire."""

from __future__ import annotations

from collections.abc import Iterable

from drumline.record import Record


class UnverifiedHost(Record):
    """A host that did not answer; at the time `until`, the leases of all its processes have expired."""

    host: str
    until: float | None = None  # seconds since 1970; None while the host may still answer, or without a lease
    lease_seconds: float | None = None  # None if the processes have no lease


def unverified_from_text(text: str) -> list[UnverifiedHost]:
    """Read one host per line: its name, and the time `until` if it is known."""
    words = [line.split() for line in text.splitlines() if line.strip()]
    return [UnverifiedHost(host, float(until[0]) if until else None) for host, *until in words]


def unverified_to_text(hosts: Iterable[UnverifiedHost]) -> str:
    """Return one line per host, as `unverified_from_text` reads them."""
    lines = (each.host if each.until is None else f"{each.host} {each.until:.0f}" for each in hosts)
    return "".join(f"{line}\n" for line in sorted(lines))
