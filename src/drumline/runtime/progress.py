"""The progress of a replica: one small file with a checksum, overwritten at each report.

The file has 512 bytes: a checksum of the other bytes in hexadecimal, JSON, spaces, a newline. Nothing is appended and
nothing is synced, so a report costs one system call.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from operator import index
from typing import NamedTuple
from zlib import crc32

from drumline.runtime import TRACE_DIR
from drumline.runtime.private import read_regular

REPORT = "report"
SIZE_BYTES = 512

RECENT_SECONDS = 60.0
_MOST_STEPS = 1 << 63
_LATEST = 1e11  # a later time is invalid


class _Counts(NamedTuple):
    """The last step that this incarnation reported, and two earlier steps with times, to measure the current pace."""

    folder: str
    last: int
    since: tuple[int, float]
    recent: tuple[int, float]


_counts: _Counts | None = None
_opened: tuple[str, int] | None = None


class Report(NamedTuple):
    """The last report and its time (UTC, seconds); and the step, with its time, from which the pace is measured."""

    step: int
    values: dict[str, float]
    at_seconds: float
    since_step: int | None = None
    since_seconds: float = 0.0


def write_report(step: int, values: Mapping[str, float], now: Callable[[], float] = time.time) -> None:
    """Overwrite this incarnation's report; outside of a run only validate the values.

    Raise ValueError for a negative step or too many values, and TypeError for a value that is no number.
    """
    number = index(step)
    if number < 0:
        raise ValueError(f"report(step={number}): a step is a number from 0")
    numbers = {name: _spell(name, value) for name, value in values.items()}
    at = round(now(), 3)
    since = _count(number, at)
    text = json.dumps({"v": 1, "step": number, "at": at, "since": since, "values": numbers}, separators=(",", ":"))
    body = text.encode().ljust(SIZE_BYTES - 10)
    if len(body) > SIZE_BYTES - 10:
        raise ValueError(f"report: {len(numbers)} values are more than a report of {SIZE_BYTES} bytes can hold")
    folder = os.environ.get(TRACE_DIR)
    if folder:
        _overwrite(folder, b"%08x " % crc32(body) + body + b"\n")


def read_report(path: str | os.PathLike[str]) -> Report | None:
    """Read the last report; None if there is none, it is being written, or it is not valid."""
    try:
        data = read_regular(path, SIZE_BYTES)
    except OSError:
        return None
    body = data[9:-1]
    if len(data) != SIZE_BYTES or data[:9] != b"%08x " % crc32(body):
        return None
    try:
        found = json.loads(body)
        values = {name: float(value) for name, value in found["values"].items()}
        report = Report(index(found["step"]), values, float(found["at"]))
        if "since" in found:
            step, at = found["since"]
            report = report._replace(since_step=index(step), since_seconds=float(at))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return None  # not written by `write_report`
    return report if _is_sane(report) else None


def _is_sane(report: Report) -> bool:
    steps, times = (report.step, report.since_step or 0), (report.at_seconds, report.since_seconds)
    return all(0 <= step < _MOST_STEPS for step in steps) and all(0 <= at < _LATEST for at in times)


def _count(step: int, at: float) -> tuple[int, float]:
    """Return an earlier step of this incarnation and its time, from which the pace of the last minutes is measured."""
    global _counts  # noqa: PLW0603
    folder = os.environ.get(TRACE_DIR, "")
    if _counts is None or _counts.folder != folder or step < _counts.last or at < _counts.recent[1]:
        _counts = _Counts(folder, step, (step, at), (step, at))  # the steps restarted, or the clock was set
    elif at - _counts.recent[1] > RECENT_SECONDS:
        _counts = _Counts(folder, step, _counts.recent, (step, at))
    else:
        _counts = _counts._replace(last=step)
    return _counts.since


def _spell(name: str, value: float) -> float | str:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"report({name}=…): expected a number, got {type(value).__name__}") from None
    return number if math.isfinite(number) else str(number)  # JSON has no NaN


def _overwrite(folder: str, data: bytes) -> None:
    """Write the report; a full disk or a missing folder must not end the training."""
    global _opened  # noqa: PLW0603 - opened once, for speed
    try:
        if _opened is None or _opened[0] != folder:
            path = os.path.join(folder, REPORT)
            _opened = folder, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.pwrite(_opened[1], data, 0)
    except OSError:
        return
