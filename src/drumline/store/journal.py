"""The journal: what happened to a run and what was decided upon it, appended by the holder of the run's lock alone.

Each line is an event with its decisions, so that a reader, or the next supervisor, finds both or neither.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from drumline.errors import EngineError
from drumline.plan.types import Plan
from drumline.run.codec import decision_from_data, event_from_data, event_to_data
from drumline.run.decision import Decision
from drumline.run.entry import Entry
from drumline.run.event import Event
from drumline.runtime.private import open_file, open_regular
from drumline.store.upgrade import Upgrade

VERSION = 2
_MOST_BYTES = 1 << 28  # that are read at once; an event takes some hundred
_LATEST = 1e11  # a time beyond this is damage


Decided = tuple[Event, tuple[Decision, ...]]  # an event, and what was decided upon it


Reserve = Callable[[int, int, int], bool]  # of a file, from where, how much


class Journal:
    """Appends to a run's journal. A line that a power loss cut in half is dropped before the first append.

    With `reserve` the file has up to twice `reserve_bytes` of room, so that what happens on a full disk can still be
    written down. When half of that is used and no more is to be had, the journal is tight: time to end the run.
    """

    def __init__(
        self,
        path: Path,
        *,
        boot: str,
        wall: Callable[[], float],
        since_boot: Callable[[], float],
        reserve: Reserve = lambda *_: True,
        reserve_bytes: int = 0,
    ) -> None:
        self.is_tight = False
        self.boot = boot
        self._wall = wall
        self._since_boot = since_boot
        self._reserve = reserve
        self._reserve_bytes = reserve_bytes
        self._file = open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._size = _drop_torn_tail(self._file)
        self._reserved = self._size  # up to here there is room
        self._unwritten = b""
        self._keep_reserve()

    def append(self, decided: Iterable[Decided]) -> None:
        """Write events down with their decisions; they are in the kernel's hands when this returns.

        Raise OSError if they cannot be; they then go before the next ones. There is never half a line.
        """
        entries = (Entry(self._wall(), self._since_boot(), self.boot, *each) for each in decided)
        self._unwritten += b"".join(map(entry_line, entries))
        written = 0
        try:
            while written < len(self._unwritten):
                written += os.write(self._file, self._unwritten[written:])
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += written
        self._unwritten = b""
        self._keep_reserve()

    def close(self) -> None:
        """Give the file back, and the room that it did not need."""
        os.ftruncate(self._file, self._size)
        os.close(self._file)

    def _keep_reserve(self) -> None:
        if self._reserved - self._size < self._reserve_bytes:
            length = 2 * self._reserve_bytes
            self.is_tight = not self._reserve(self._file, self._size, length)
            if not self.is_tight:
                self._reserved = self._size + length


class JournalReader:
    """Reads the journal of a run as it grows; one of an older version as this version would write it."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self._path = path
        self._plan = plan
        self._begin(0)

    def _begin(self, inode: int) -> None:
        self._inode = inode
        self._offset = 0
        self._number = 0  # of the entries that were read
        self._upgrade: Upgrade | None = None

    def read(self) -> list[Entry]:
        """Return the entries that are new, without a line that is not whole; raise EngineError if that may not be."""
        known = self._number
        if (data := self._data()) is None:
            return []
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        entries = [entry for line in data[:whole].splitlines() if (entry := self._parse(line))]
        skipped = max(0, known - self._number)  # a journal that was migrated has the same entries
        self._number += len(entries)
        return entries[skipped:]

    def _data(self) -> bytes | None:
        try:
            with open(self._path, "rb", opener=open_regular) as stream:
                inode = os.fstat(stream.fileno()).st_ino
                if inode != self._inode:
                    self._begin(inode)
                stream.seek(self._offset)
                return stream.read(_MOST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EngineError(f"run {self._path.parent.name} cannot be read: {error.strerror}") from None

    def _parse(self, line: bytes) -> Entry | None:
        version, entry = parse_line(line)
        if entry and (version < VERSION or self._upgrade):
            if self._upgrade is None:
                self._upgrade = Upgrade(self._plan)
            entry = upgraded(self._upgrade, version, entry)
        return entry


def upgraded(upgrade: Upgrade, version: int, entry: Entry) -> Entry:
    """Return the next entry of a journal as this version would have written it."""
    if version == VERSION:
        upgrade.take(entry.event, entry.decisions)
        return entry
    return entry.replace(decisions=upgrade.decide(entry.event))


def read_journal(path: Path, plan: Plan) -> list[Entry]:
    """Read what happened to a run so far; nothing for a run that has no journal."""
    return JournalReader(path, plan).read()


def parse_line(line: bytes) -> tuple[int, Entry | None]:
    """Return the version that a line was written by, and its entry; None if this version cannot read it."""
    try:
        data: dict[str, Any] = json.loads(line)
        version = data.pop("v")
        if version not in range(1, VERSION + 1):
            return 0, None
        at, since_boot, boot = float(data.pop("at")), float(data.pop("up")), data.pop("boot")
        if not (abs(at) < _LATEST and abs(since_boot) < _LATEST and isinstance(boot, str) and boot.isascii()):
            return 0, None
        decisions = tuple([decision_from_data(each, tolerant=True) for each in data.pop("decisions", ())])
        return version, Entry(at, since_boot, boot, event_from_data(data, tolerant=True), decisions)
    except (ValueError, KeyError, AttributeError, TypeError, OverflowError, RecursionError):
        return 0, None


def entry_line(entry: Entry) -> bytes:
    """Return the line of an entry."""
    data = {
        "v": VERSION,
        "at": round(entry.at, 3),
        "up": round(entry.since_boot, 3),
        "boot": entry.boot,
        **event_to_data(entry.event),
    }
    if entry.decisions:
        data["decisions"] = [event_to_data(each) for each in entry.decisions]
    return f"{json.dumps(data, ensure_ascii=False)}\n".encode("utf-8", "backslashreplace")


def _drop_torn_tail(file: int) -> int:
    """Cut the file behind its last whole line; return how long it is then."""
    size = end = os.fstat(file).st_size
    while end:
        start = max(0, end - 65536)
        whole = os.pread(file, end - start, start).rfind(b"\n") + 1
        if whole:
            end = start + whole
            break
        end = start
    if end != size:
        os.ftruncate(file, end)
    return end
