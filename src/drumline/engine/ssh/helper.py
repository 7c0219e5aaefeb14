"""One helper: its state on each of its hosts, and the orders to send to each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from drumline.engine.agent.launches import incarnation_to_text
from drumline.engine.notes import note, read_end, read_notes
from drumline.engine.tracker import Tracked
from drumline.run.event import Exit
from drumline.run.incarnation import Incarnation
from drumline.run.traces import LOG

_HOSTS = "hosts"  # the key of the helper's hosts in its trace


class HelperPart:
    """A helper on one host: its log, and its end."""

    def __init__(self, folder: Path, host: str) -> None:
        self.host = host
        self.file = folder / f"{LOG}.{host.replace('/', '_')}"
        self.kill_at: float | None = None
        self.exit: Exit | None = None
        self.may_start = False  # the host has all files that the helper needs
        self.is_late = False  # it started after the end on all other hosts was reported

    @property
    def offset(self) -> int:
        """Return the size in bytes of its log on this machine."""
        with suppress(OSError):
            return self.file.stat().st_size
        return 0


class Helper(Tracked):
    """An incarnation of a helper, on all its hosts."""

    def __init__(self, incarnation: Incarnation, folder: Path) -> None:
        super().__init__(incarnation, folder)
        hosts = read_notes(folder).get(_HOSTS)
        self.has_begun = bool(hosts)  # under this supervisor or an earlier one
        self.parts = {host: HelperPart(folder, host) for host in hosts or ()}
        self.plans: dict[str, str] = {}  # the plan for each host, as JSON
        self.end = read_end(folder)

    def note_hosts(self, hosts: Iterable[str]) -> None:
        """Record its hosts."""
        note(self.folder, {_HOSTS: list(hosts)})

    @property
    def is_active(self) -> bool:
        """Return whether it runs or is about to start on a host, as far as is known."""
        return self.end is None or any(part.is_late and part.exit is None for part in self.parts.values())

    def is_done_on(self, host: str) -> bool:
        """Return whether it has succeeded on this host.

        On hosts that took part from the start it counts as successful once it has succeeded on all of them.
        """
        part = self.parts.get(host)
        if part is None or self.end is None or not self.end.exit.ok:
            return False
        return not part.is_late or bool(part.exit and part.exit.ok)

    def waits_on(self, host: str) -> bool:
        """Return whether it runs or is about to start on this host."""
        part = self.parts.get(host)
        return part is not None and part.exit is None and (self.end is None or part.is_late)

    def orders(self, host: str, now: float) -> Iterator[dict[str, Any]]:
        """Yield the orders to send to a host whenever it connects; `now` is by the clock of the loop."""
        part = self.parts.get(host)
        if part is None or not self.waits_on(host) or not part.may_start:
            return
        name, offsets = incarnation_to_text(self.id), {incarnation_to_text(self.id): part.offset}
        if part.kill_at is None:
            about = {"helper": str(self.id.replica), "incarnation": self.id.incarnation, "attempt": 0}
            yield {"do": "prepare", **about, "plan": self.plans[host], "offsets": offsets}
        else:
            grace = max(0.0, part.kill_at - now)
            yield {"do": "stop", "incarnations": [name], "attempt": 0, "grace": grace, "offsets": offsets}
