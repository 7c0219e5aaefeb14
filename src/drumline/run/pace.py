"""How fast a training goes, from when it said how far it is: for scripts whose lines have no time of their own."""

from __future__ import annotations

from collections.abc import Iterable

from drumline.record import Record
from drumline.run.progress import Progress, newest_first, read_piece

_MOST = 200  # points; a tail of short lines has more, and the last are enough
_SHORTEST_SECONDS = 2.0  # marks are up to a quarter of a second late


class Point(Record):
    """A count that a log had reached by one of its bytes."""

    end: int
    reached: int


class Pace(Record):
    """Counts in a second, over how many seconds and counts that was measured, and how often it said something."""

    rate: float
    seconds: float
    counts: int
    every_seconds: float


def counted(tail: bytes, progress: Progress, *, is_cut: bool) -> list[Point]:
    """Return where a log last counted up to what it says now, the newest first: steps, or epochs if it has no steps.

    Back to where something else was counted, or the count began anew.
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
            break  # an epoch that is only announced has not been done
        if (points and count > points[-1].reached) or len(points) >= _MOST:
            break
        points.append(Point(piece.end, count))
    return points


def pace_of(moments: Iterable[tuple[float, int]]) -> Pace | None:
    """The pace of moments at which counts had been reached, the newest first; None if they are too close together."""
    reached: dict[float, int] = {}
    for at, count in moments:
        reached[at] = max(count, reached.get(at, 0))  # of lines that came at once, the last one is of that moment
    first_at: dict[int, float] = {}
    for at, count in reached.items():
        first_at[count] = min(at, first_at.get(count, at))  # what was said again had been reached before
    if len(first_at) < 2:
        return None
    (low, start), (high, end) = min(first_at.items()), max(first_at.items())
    seconds = end - start
    if seconds < _SHORTEST_SECONDS:
        return None
    return Pace((high - low) / seconds, seconds, high - low, seconds / (len(first_at) - 1))
