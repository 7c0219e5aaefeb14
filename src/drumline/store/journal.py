"""The journal: what happened to a run, one JSON line each, appended by the holder of the run's lock alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from drumline.run.codec import event_from_data, event_to_data
from drumline.run.event import Event

VERSION = 1


class Record(NamedTuple):
    """An event, when it was written down (UTC), and the same by the clock that never goes back."""

    at: float
    since_boot: float
    boot: str
    event: Event


class Journal:
    """Appends to a run's journal. A line that a power loss cut in half is dropped before the first append."""

    def __init__(self, path: Path, *, boot: str, wall: Callable[[], float], since_boot: Callable[[], float]) -> None:
        self._boot = boot
        self._wall = wall
        self._since_boot = since_boot
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        _drop_torn_tail(self._file)

    def append(self, events: Iterable[Event]) -> list[Record]:
        """Write events down; they are in the kernel's hands when this returns. Raise OSError if they cannot be."""
        records = [Record(self._wall(), self._since_boot(), self._boot, event) for event in events]
        data = "".join(f"{json.dumps(_to_data(record), ensure_ascii=False)}\n" for record in records).encode()
        written = 0
        while written < len(data):
            written += os.write(self._file, data[written:])
        return records

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)


def read_journal(path: Path) -> Iterator[Record]:
    """Read what happened so far; nothing for a run that has no journal, and no line that is not whole."""
    yield from read_records(path, 0)[0]


def read_records(path: Path, offset: int) -> tuple[list[Record], int]:
    """Read the whole records from an offset on, and return where to go on."""
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            data = stream.read()
    except FileNotFoundError:
        return [], offset
    whole = data.rfind(b"\n") + 1
    records = []
    for line in data[:whole].splitlines():
        record = _parse(line)
        if record is not None:
            records.append(record)
    return records, offset + whole


def _parse(line: bytes) -> Record | None:
    try:
        data: dict[str, Any] = json.loads(line)
        if data.pop("v") != VERSION:
            return None
        return Record(data.pop("at"), data.pop("up"), data.pop("boot"), event_from_data(data))
    except (ValueError, KeyError, AttributeError, TypeError):
        return None


def _to_data(record: Record) -> dict[str, object]:
    return {
        "v": VERSION,
        "at": round(record.at, 3),
        "up": round(record.since_boot, 3),
        "boot": record.boot,
        **event_to_data(record.event),
    }


def _drop_torn_tail(file: int) -> None:
    size = os.fstat(file).st_size
    if size == 0:
        return
    data = os.pread(file, min(size, 65536), max(0, size - 65536))
    whole = data.rfind(b"\n") + 1
    if whole != len(data):
        os.ftruncate(file, size - len(data) + whole)
