"""The replicas of one run on all hosts, as far as this machine has received reports about them.

Reports of a host are accepted only about its own replicas. They arrive in the order of the events, an end after the
whole log. A replica on a lost host is reported to have ended, and is killed if the host ever connects again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.notes import End, note, read_notes
from drumline.engine.protocol import ReportEvent
from drumline.engine.ssh.reports import LogPiece, SmallFile
from drumline.engine.tracker import ReplicaTracker, Tracked
from drumline.plan.types import Launch
from drumline.run.event import Exit, ReplicaStarted
from drumline.run.incarnation import Incarnation
from drumline.run.traces import LOG
from drumline.run.usage import Usage
from drumline.runtime.private import make_folder, open_file, write_file

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

HOST_LOST = "HostLost"


class HostReplica(Tracked):
    """An incarnation of a replica, on a host or on none yet."""

    def __init__(self, incarnation: Incarnation, folder: Path) -> None:
        super().__init__(incarnation, folder)
        self.host = ""
        self.launch: Launch | None = None
        self.is_ordered = bool(read_notes(folder).get("ordered"))  # its host has the order, or receives it next
        self.kill_at: float | None = None  # when it is killed, if its host was ordered to stop it
        self.usage: Usage | None = None  # its total usage after its end, until `used` returns it

    @property
    def note(self) -> str:  # type: ignore[override]
        """Return a note about where it runs."""
        return f"on {self.host}"

    @property
    def offset(self) -> int:
        """Return the size in bytes of its log on this machine."""
        with suppress(OSError):
            return os.stat(self.folder / LOG).st_size  # noqa: PTH116
        return 0


class HostReplicas:
    """Stores the host of every incarnation; `tracker` reports their starts and ends."""

    def __init__(self, run_dir: Path, loop: AbstractEventLoop, report: ReportEvent) -> None:
        self.tracker = ReplicaTracker(run_dir, HostReplica, loop, report)
        self._run_dir = run_dir
        self._loop = loop

    def __iter__(self) -> Iterator[HostReplica]:
        return iter(self.tracker)

    def get(self, incarnation: Incarnation) -> HostReplica | None:
        """Return a known incarnation."""
        return self.tracker.get(incarnation)

    def find_ordered(self, incarnation: Incarnation, host: str) -> HostReplica | None:
        """Return an incarnation if this host was ordered to start it, else None."""
        found = self.tracker.get(incarnation)
        return found if found and found.host == host and found.is_ordered else None

    def was_ordered(self, incarnation: Incarnation, host: str) -> bool:
        """Return whether any supervisor has ordered this host to start an incarnation, of a replica or a helper."""
        notes = read_notes(self._run_dir / incarnation.folder)
        return notes.get("host") == host or host in (notes.get("hosts") or ())

    def of(self, host: str) -> list[HostReplica]:
        """Return the replicas of one host that run, as far as is known."""
        return [each for each in self.tracker if each.host == host and each.end is None]

    def ask(self, wanted: Iterable[tuple[Incarnation, str]]) -> list[HostReplica]:
        """Report starts and ends of these incarnations from now on; return them, each with its host."""
        placed = dict(wanted)
        for incarnation, host in placed.items():
            found = self.tracker.find(incarnation)
            found.host = found.host or host
        return self.tracker.ask(placed)

    def order(self, replica: HostReplica) -> None:
        """Record the host of a replica before the order to start it is sent."""
        if not replica.is_ordered:
            replica.is_ordered = True
            note(replica.folder, {"host": replica.host, "ordered": True})

    def started(self, replica: HostReplica, event: ReplicaStarted) -> None:
        """Report a start that a host has sent."""
        words = f"{event.note}, {replica.note}" if event.note else replica.note
        if replica.end is None and not replica.has_started and event.pid is not None:
            note(replica.folder, {"there": event.pid})
        if replica.end is None:
            self.tracker.start(replica, event.replace(note=words))

    def end(self, replica: HostReplica, exit_: Exit, at_seconds: float, usage: Usage | None = None) -> None:
        """Report an end at a time of this machine's clock; only the first end of a replica is reported."""
        if replica.end is None:
            replica.usage = usage
            self.tracker.end(replica, End(exit_, at_seconds, has_started=replica.has_started))

    def lose(self, host: str, exit_: Exit) -> None:
        """Report the end of all replicas on a host that is lost."""
        for each in self.of(host):
            self.end(each, exit_, self._loop.time())

    def write(self, replica: HostReplica, report: LogPiece | SmallFile) -> None:
        """Write data that a host has sent about a replica: a piece of its log, or a file beside it."""
        make_folder(replica.folder)
        match report:
            case LogPiece():
                _append(replica.folder / LOG, report.at, report.data)
            case SmallFile():
                write_file(replica.folder / report.name, report.data)

    def used(self) -> Iterator[Usage]:
        """Yield the usage of replicas that have ended since the last call."""
        for each in self.tracker:
            if each.usage:
                usage, each.usage = each.usage, None
                yield usage


def by_our_clock(usage: Usage, skew_seconds: float) -> Usage:
    """Return a measurement of a host with its times by the clock of this machine."""
    return usage.replace(
        at_seconds=usage.at_seconds - skew_seconds, started_seconds=usage.started_seconds - skew_seconds
    )


def _append(path: Path, offset: int, data: bytes) -> None:
    """Append to a log the bytes from `offset` on that it does not have yet."""
    file = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        known = os.fstat(file).st_size - offset
        if known >= 0:
            os.write(file, data[known:])
    finally:
        os.close(file)
