"""The journal: what happened to a run, one JSON line each, appended by the holder of the run's lock alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from drumline.errors import EngineError
from drumline.record import Record
from drumline.run.codec import event_from_data, event_to_data
from drumline.run.event import Event
from drumline.runtime.private import open_file, open_regular

VERSION = 1
_MOST_BYTES = 1 << 28  # that are read at once; an event takes some hundred
_LATEST = 1e11  # a time beyond this is damage


class Entry(Record):
    """An event, when it was written down (UTC), and the same by the clock that never goes back."""

    at: float
    since_boot: float
    boot: str
    event: Event


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

    def append(self, events: Iterable[Event]) -> None:
        """Write events down; they are in the kernel's hands when this returns.

        Raise OSError if they cannot be; they then go before the next ones. There is never half a line.
        """
        records = [Entry(self._wall(), self._since_boot(), self.boot, event) for event in events]
        lines = (f"{json.dumps(_to_data(record), ensure_ascii=False)}\n" for record in records)
        self._unwritten += "".join(lines).encode("utf-8", "backslashreplace")
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


def read_journal(path: Path) -> Iterator[Entry]:
    """Read what happened so far; nothing for a run that has no journal, and no line that is not whole."""
    yield from read_records(path, 0)[0]


def read_records(path: Path, offset: int) -> tuple[list[Entry], int]:
    """Read the whole records from an offset on, and return where to go on; raise EngineError if that may not be."""
    try:
        with open(path, "rb", opener=open_regular) as stream:
            stream.seek(offset)
            data = stream.read(_MOST_BYTES)
    except FileNotFoundError:
        return [], offset
    except OSError as error:
        raise EngineError(f"run {path.parent.name} cannot be read: {error.strerror}") from None
    whole = data.rfind(b"\n") + 1
    records = []
    for line in data[:whole].splitlines():
        record = _parse(line)
        if record is not None:
            records.append(record)
    return records, offset + whole


def _parse(line: bytes) -> Entry | None:
    try:
        data: dict[str, Any] = json.loads(line)
        if data.pop("v") != VERSION:
            return None
        at, since_boot, boot = float(data.pop("at")), float(data.pop("up")), data.pop("boot")
        if not (abs(at) < _LATEST and abs(since_boot) < _LATEST and isinstance(boot, str) and boot.isascii()):
            return None
        return Entry(at, since_boot, boot, event_from_data(data, tolerant=True))
    except (ValueError, KeyError, AttributeError, TypeError, OverflowError, RecursionError):
        return None


def _to_data(record: Entry) -> dict[str, object]:
    return {
        "v": VERSION,
        "at": round(record.at, 3),
        "up": round(record.since_boot, 3),
        "boot": record.boot,
        **event_to_data(record.event),
    }


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
