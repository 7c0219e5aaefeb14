"""Measure the pace of a training from the times at which its log reached each step, for scripts that print no rate."""

from __future__ import annotations

from collections.abc import Iterable

from drumline.record import Record
from drumline.run.progress import Progress, newest_first, read_piece

_MOST = 200  # points that are read, the newest first
_SHORTEST_SECONDS = 2.0  # marks are up to 0.25 s late


class Point(Record):
    """A step or epoch that a log had reached at a byte offset."""

    end: int  # the byte offset
    reached: int  # the step or epoch


class Pace(Record):
    """The pace of a training, in steps or epochs."""

    rate: float  # steps or epochs per second
    seconds: float  # the time over which the rate was measured
    counts: int  # the number of steps or epochs over which it was measured
    every_seconds: float  # the mean time between two reports in the log


def counted(tail: bytes, progress: Progress, *, is_cut: bool) -> list[Point]:
    """Return the points of the current count in a log, newest first: steps, or epochs if `progress` has no step.

    The oldest point is the first one after the count started or restarted.
    """
    by_step, first, points = progress.step is not None, None, list[Point]()
    for piece in newest_first(tail, is_cut=is_cut):
        found = read_piece(piece)
        if found is None:
            continue
        first = first or found
        count = found.step if by_step else found.epoch
        same = (found.epoch, found.steps) == (first.epoch, first.steps) if by_step else found.step is None
        if count is None or not same or (not by_step and found.loss is None):
            break  # an epoch that is only announced is not completed
        if (points and count > points[-1].reached) or len(points) >= _MOST:
            break
        points.append(Point(piece.end, count))
    return points


def pace_of(moments: Iterable[tuple[float, int]]) -> Pace | None:
    """Return the pace of these (time, count) pairs, newest first; None if they span less than two seconds."""
    reached: dict[float, int] = {}
    for at, count in moments:
        reached[at] = max(count, reached.get(at, 0))  # of lines with the same time, the highest count is used
    first_at: dict[int, float] = {}
    for at, count in reached.items():
        first_at[count] = min(at, first_at.get(count, at))  # a repeated count had been reached before
    if len(first_at) < 2:
        return None
    (low, start), (high, end) = min(first_at.items()), max(first_at.items())
    seconds = end - start
    if seconds < _SHORTEST_SECONDS:
        return None
    return Pace((high - low) / seconds, seconds, high - low, seconds / (len(first_at) - 1))
