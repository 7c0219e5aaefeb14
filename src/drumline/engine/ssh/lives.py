"""The lives of one run's replicas on all hosts, as this machine knows them.

A host is believed only about the lives that it was given. Each start and each end is told once. What hosts say comes in
the order in which it happened there, an end after all of its log; a life whose host is lost is told to have ended here,
and is ended there if the host ever answers again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.local.life import Life
from drumline.engine.notes import End, note, note_end, read_end, read_notes
from drumline.engine.protocol import Tell
from drumline.engine.ssh.news import LogPiece, SmallFile
from drumline.plan.types import Launch
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted
from drumline.run.traces import LOG
from drumline.run.usage import Usage
from drumline.runtime.private import make_folder, open_file, write_file

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

HOST_LOST = "HostLost"
NEVER_STARTED = Exit(message="it was never started")


class Kept:
    """A life that somebody has asked about."""

    def __init__(self, life: Life, folder: Path, host: str) -> None:
        self.life = life
        self.folder = folder
        self.host = host
        self.launch: Launch | None = None
        self.is_ordered = False  # its host was told of it, or is about to be, by us or by an earlier supervisor
        self.kill_at: float | None = None  # it is stopped, and killed by then
        self.told_start = False
        self.end: End | None = None
        self.looked_at = False

    @property
    def offset(self) -> int:
        """How much of its log is here."""
        with suppress(OSError):
            return os.stat(self.folder / LOG).st_size  # noqa: PTH116
        return 0


class Lives:
    """Knows every life of a run, and tells of those that were asked for."""

    def __init__(self, run_dir: Path, loop: AbstractEventLoop, tell: Tell) -> None:
        self._run_dir = run_dir
        self._loop = loop
        self._tell = tell
        self._kept: dict[Life, Kept] = {}
        self._used: list[Usage] = []  # by those that have ended, until somebody asks

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._kept.values())

    def get(self, life: Life) -> Kept | None:
        """What is known of a life."""
        return self._kept.get(life)

    def given(self, life: Life, host: str) -> Kept | None:
        """Return what is known of a life if this host was told to start it, else None."""
        kept = self._kept.get(life)
        return kept if kept and kept.host == host and kept.is_ordered else None

    def of(self, host: str) -> list[Kept]:
        """The lives of one host that go on, as far as anybody knows."""
        return [each for each in self._kept.values() if each.host == host and each.end is None]

    def ask_for(self, wanted: Iterable[tuple[Life, str]]) -> list[Kept]:
        """Tell of these from now on; who is known to have ended is told of in the order of the ends."""
        found, before = [], []
        for life, host in wanted:
            if life in self._kept:
                found.append(self._kept[life])
                continue
            kept = self._kept[life] = Kept(life, life.folder(self._run_dir), host)
            found.append(kept)
            kept.is_ordered = read_notes(kept.folder).get("ordered", False)
            if end := read_end(kept.folder):
                kept.end = end
                before.append(kept)
        for kept in sorted(before, key=lambda each: each.end.at_seconds if each.end else 0.0):
            if kept.end:
                self._tell_end(kept, kept.end)
        return found

    def order(self, kept: Kept) -> None:
        """Write down where a life is to be, before its host is told of it."""
        if not kept.is_ordered:
            kept.is_ordered = True
            note(kept.folder, {"host": kept.host, "ordered": True})

    def started(self, kept: Kept, event: ReplicaStarted) -> None:
        """A host says that a life has begun."""
        if not kept.told_start and kept.end is None:
            kept.told_start = True
            words = f"{event.note}, on {kept.host}" if event.note else f"on {kept.host}"
            if event.pid is not None:
                note(kept.folder, {"there": event.pid})
            self._tell(event.replace(note=words))

    def ended(self, kept: Kept, event: ReplicaExited, usage: Usage | None) -> None:
        """A host says that a life has ended, by the clock of this machine."""
        if kept.end is not None:
            return
        if usage:
            self._used.append(usage)
        self.end(kept, event.exit, event.at_seconds)

    def end(self, kept: Kept, exit_: Exit, at_seconds: float) -> None:
        """Tell that a life has ended, and remember it."""
        kept.end = End(exit_, at_seconds, has_started=kept.told_start)
        note_end(kept.folder, kept.end)
        self._tell(ReplicaExited(kept.life.replica, kept.life.attempt, kept.life.incarnation, exit_, at_seconds))

    def lose(self, host: str, exit_: Exit) -> None:
        """A host is gone; say so of everybody there."""
        for kept in self.of(host):
            self.end(kept, exit_, self._loop.time())

    def write(self, kept: Kept, news: LogPiece | SmallFile) -> None:
        """Put what a host says of a life where it belongs: a piece of its log, or a file beside that."""
        make_folder(kept.folder)
        match news:
            case LogPiece():
                _append(kept.folder / LOG, news.at, news.data)
            case SmallFile():
                write_file(kept.folder / news.name, news.data)

    def used(self) -> Iterator[Usage]:
        """What those have used that have ended since this was asked last."""
        used, self._used = self._used, []
        return iter(used)

    def traces(self) -> Iterator[Path]:
        """The folders of all lives that go on, and of those that ended since this was asked last."""
        for kept in self._kept.values():
            if kept.end is None or not kept.looked_at:
                kept.looked_at = kept.end is not None
                yield kept.folder

    def _tell_end(self, kept: Kept, end: End) -> None:
        if end.has_started and not kept.told_start:
            kept.told_start = True
            self._tell(
                ReplicaStarted(kept.life.replica, kept.life.attempt, kept.life.incarnation, note=f"on {kept.host}")
            )
        self._tell(ReplicaExited(kept.life.replica, kept.life.attempt, kept.life.incarnation, end.exit, end.at_seconds))


def by_our_clock(usage: Usage, skew_seconds: float) -> Usage:
    """Return what a host has measured, by the clock of this machine."""
    return usage.replace(
        at_seconds=usage.at_seconds - skew_seconds, started_seconds=usage.started_seconds - skew_seconds
    )


def _append(path: Path, offset: int, data: bytes) -> None:
    """Add to a log what is not yet in it: its bytes are known by their place, and none is left out."""
    file = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        known = os.fstat(file).st_size - offset
        if known >= 0:
            os.write(file, data[known:])
    finally:
        os.close(file)
