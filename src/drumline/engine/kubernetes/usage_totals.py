"""The total usage of incarnations in a cluster, added up from samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from drumline.engine.kubernetes.metrics import UsageSample
from drumline.engine.kubernetes.podwatch import TrackedPod
from drumline.record import Record, to_dict
from drumline.run.incarnation import Incarnation
from drumline.run.traces import USAGE
from drumline.run.usage import Usage
from drumline.runtime.private import write_file

# Seconds between two reads; metrics change about every fifteen seconds.
WATCHED_SECONDS, UNWATCHED_SECONDS = 3.0, 15.0


class _Sum(Record):
    """The usage of an incarnation up to a time (UTC), and the difference between two clocks at its first sample."""

    started_at: float
    at: float
    cpu_seconds: float
    memory_bytes: int | None
    boot: str
    offset: float  # from UTC to the monotonic clock


class UsageTotals:
    """Adds up samples, and stores each total for the next supervisor."""

    def __init__(self, now: Callable[[], float], wall: Callable[[], float], boot: str) -> None:
        self._now, self._wall = now, wall
        self._boot, self._offset = boot, now() - wall()
        self._sums: dict[Incarnation, _Sum] = {}
        self._readings: dict[str, UsageSample] = {}
        self._asked = -UNWATCHED_SECONDS

    def is_due(self, *, watched: bool) -> bool:
        """Return whether the next read is due; if so, count the time of the following one from now."""
        now = self._now()
        if now - self._asked < (WATCHED_SECONDS if watched else UNWATCHED_SECONDS):
            return False
        self._asked = now
        return True

    def add(self, readings: Iterable[UsageSample]) -> None:
        """Add samples; a time in the future counts as now."""
        now = self._wall()
        self._readings.update((each.pod, each.replace(at=min(each.at, now))) for each in readings)

    def measure(self, tracked: Iterable[TrackedPod]) -> Iterator[Usage]:
        """Yield the usage of each incarnation at its last sample or its end; those without a sample are left out."""
        for each in tracked:
            known = self._sum(each)
            if known is None:
                continue
            ended, offset = each.end.at_seconds if each.end else None, known.offset
            yield Usage(
                each.id.replica,
                each.id.attempt,
                each.id.incarnation,
                at_seconds=known.at + offset if ended is None else ended,
                started_seconds=known.started_at + offset,
                cpu_seconds=known.cpu_seconds,
                memory_bytes=known.memory_bytes if ended is None else None,
            )
            if ended is not None:
                self._sums.pop(each.id, None)
                self._readings.pop(each.pod_name, None)

    def _sum(self, each: TrackedPod) -> _Sum | None:
        known = self._sums.get(each.id) or _read(each.folder / USAGE)
        if known and known.boot != self._boot:
            known = known.replace(boot=self._boot, offset=self._offset)
        reading = self._readings.get(each.pod_name)
        if reading is not None and (known is None or reading.at > known.at):
            began = _Sum(each.started_at, each.started_at, 0.0, None, self._boot, self._offset)
            known = _add(known or began, reading)
            with suppress(OSError):
                write_file(each.folder / USAGE, json.dumps(list(to_dict(known).values())).encode())
        if known is not None:
            self._sums[each.id] = known
        return known


def _add(known: _Sum, reading: UsageSample) -> _Sum:
    """Return the total with one more sample; a rate counts for the time since the last sample."""
    if reading.cpu_seconds is not None:
        cpu_seconds = max(known.cpu_seconds, reading.cpu_seconds)
    else:
        cpu_seconds = known.cpu_seconds + (reading.cpus or 0.0) * max(0.0, reading.at - known.at)
    return known.replace(at=max(known.at, reading.at), cpu_seconds=cpu_seconds, memory_bytes=reading.memory_bytes)


def _read(path: Path) -> _Sum | None:
    try:
        return _Sum(*json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
