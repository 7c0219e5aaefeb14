"""The journal of a run: events and decisions, appended only by the process that holds the run's lock.

Each line has an event with its decisions, so that a reader finds both or neither.
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
_MOST_BYTES = 1 << 28  # bytes that are read at once; an event takes a few hundred bytes
_LATEST = 1e11  # a time beyond this is damage


Decided = tuple[Event, tuple[Decision, ...]]  # an event with its decisions


Reserve = Callable[[int, int, int], bool]  # arguments: file, offset, length


class Journal:
    """Appends to a run's journal. An incomplete last line, as after a power loss, is dropped before the first append.

    With `reserve`, up to twice `reserve_bytes` are allocated in advance, so that events can be recorded on a full disk.
    When less than `reserve_bytes` are left and no more can be allocated, `is_tight` is set: the run has to be stopped.
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
        self._reserved = self._size  # allocated up to this offset
        self._unwritten = b""
        self._keep_reserve()

    def append(self, decided: Iterable[Decided]) -> None:
        """Append events with their decisions; they are in the file when this returns.

        Raise OSError if they cannot be written; they are kept and written by the next call. Lines are always complete.
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
        """Close the file, and free the allocated space that was not used."""
        os.ftruncate(self._file, self._size)
        os.close(self._file)

    def _keep_reserve(self) -> None:
        if self._reserved - self._size < self._reserve_bytes:
            length = 2 * self._reserve_bytes
            self.is_tight = not self._reserve(self._file, self._size, length)
            if not self.is_tight:
                self._reserved = self._size + length


class JournalReader:
    """Reads the journal of a run as it grows; entries of older versions are upgraded."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self._path = path
        self._plan = plan
        self._begin(0)

    def _begin(self, inode: int) -> None:
        self._inode = inode
        self._offset = 0
        self._number = 0  # number of the entries that were read
        self._upgrade: Upgrade | None = None

    def read(self) -> list[Entry]:
        """Return the new entries, up to the last complete line; raise EngineError if the journal cannot be read."""
        known = self._number
        if (data := self._data()) is None:
            return []
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        entries = [entry for line in data[:whole].splitlines() if (entry := self._parse(line))]
        skipped = max(0, known - self._number)  # after a migration, the entries that were returned before are skipped
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
    """Return the next entry of a journal with the decisions that this version would have recorded."""
    if version == VERSION:
        upgrade.take(entry.event, entry.decisions)
        return entry
    return entry.replace(decisions=upgrade.decide(entry.event))


def read_journal(path: Path, plan: Plan) -> list[Entry]:
    """Return the entries of a journal, up to its last complete line; none if it does not exist."""
    return JournalReader(path, plan).read()


def parse_line(line: bytes) -> tuple[int, Entry | None]:
    """Return the version and the entry of a line; 0 and None if this version cannot read it."""
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
    """Return an entry as a line of the journal."""
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
    """Truncate the file after its last complete line; return its size."""
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
