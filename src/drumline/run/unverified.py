"""Hosts that did not answer, so that processes of a run may be left on them, and until when."""

from __future__ import annotations

from collections.abc import Iterable

from drumline.record import Record


class UnverifiedHost(Record):
    """A host that did not answer; at the time `until`, the leases of all its processes have expired."""

    host: str
    until: float | None = None  # seconds since 1970; None while the host may still answer, or without a lease
    lease_seconds: float | None = None  # None: without a lease


def unverified_from_text(text: str) -> list[UnverifiedHost]:
    """Read one host per line: its name, and the time if there is one."""
    words = [line.split() for line in text.splitlines() if line.strip()]
    return [UnverifiedHost(host, float(until[0]) if until else None) for host, *until in words]


def unverified_to_text(hosts: Iterable[UnverifiedHost]) -> str:
    """Return one line per host, as `unverified_from_text` reads them."""
    lines = (each.host if each.until is None else f"{each.host} {each.until:.0f}" for each in hosts)
    return "".join(f"{line}\n" for line in sorted(lines))
