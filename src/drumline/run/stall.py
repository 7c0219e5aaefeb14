"""Detect stalled runs: the time without a step, compared with the longest time between earlier steps."""

from __future__ import annotations

from drumline.record import Record
from drumline.run.event import StepsStalled
from drumline.words import format_duration

# A run is stalled if it takes no step for SHORTEST_SECONDS, and for TIMES_LONGEST times the longest earlier gap.
SHORTEST_SECONDS = 60.0
TIMES_LONGEST = 10


class Gaps(Record):
    """The last step that was seen, its time by the clock of events, and the longest time between two steps."""

    at_seconds: float
    step: int | None = None
    longest_seconds: float | None = None  # None before there were two steps


def with_step(gaps: Gaps | None, at_seconds: float, step: int | None) -> Gaps:
    """Return the gaps after one more step."""
    if gaps is None:
        return Gaps(at_seconds, step)
    return Gaps(at_seconds, step, max(gaps.longest_seconds or 0.0, at_seconds - gaps.at_seconds))


def is_stalled(gaps: Gaps, now: float, lag_seconds: float = 0.0) -> bool:
    """Return whether no step was taken for much longer than in earlier gaps; steps are seen `lag_seconds` late."""
    if gaps.longest_seconds is None:
        return False
    return now - gaps.at_seconds >= max(SHORTEST_SECONDS + lag_seconds, TIMES_LONGEST * gaps.longest_seconds)


def describe_stall(event: StepsStalled) -> str:
    """Return `no step for 4m, since step 30; worker.1 is in spin (train.py:12), worker.0 waits in all_reduce`."""
    since = "" if event.step is None else f", since step {event.step}"
    where = f"; {event.message}" if event.message else ""
    return f"no step for {format_duration(event.seconds)}{since}{where}"
