"""How the time of a run was spent: every second is of exactly one kind, and the kinds add up to the whole time.

waiting: the run waits for resources, builds or the delay before a restart
starting: from the placement to the first step that was seen
recomputed: on steps that had been taken before a restart
productive: on new steps, up to the usual time of a step
evaluating, saving: between steps, according to the log
idle: between steps, without an explanation
down: from the end of the training until the next attempt may begin or the run is over
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import fsum

from drumline.plan.types import Plan
from drumline.record import Record
from drumline.run.decision import Decision
from drumline.run.event import Event
from drumline.run.fold import fold_entry, new_run
from drumline.run.state import Phase, RunState

LAPSES = ("evaluating", "saving", "idle")
_FEWEST_GAPS = 2
# A lapse is at least so long, and so many times the usual time: the times of steps are exact to 0.25 s only.
_SHORTEST_LAPSE_SECONDS, _TIMES_USUAL = 1.0, 3.0


class TimedEvent(Record):
    """An event with its decisions, and when it was recorded, by two clocks."""

    at: float  # seconds since the start of the run
    since_boot: float  # seconds by the clock of events
    event: Event
    decisions: tuple[Decision, ...] = ()


class Uptime(Record):
    """A time in which the gang was up: from its placement to its failure, or until now.

    If the chief can restart alone, each of its incarnations has its own uptime.
    """

    attempt: int
    start: float
    end: float
    is_hung: bool = False  # the time after the last step counts as down
    incarnation: int = 0  # of the chief

    @property
    def key(self) -> Key:
        """Return the attempt, and the incarnation of the chief."""
        return self.attempt, self.incarnation


Key = tuple[int, int]


class Timeline(Record):
    """The time of a run, divided into waiting, down and uptimes; `account_time` divides the uptimes by their steps."""

    seconds: float
    waiting_seconds: float
    down_seconds: float
    uptimes: tuple[Uptime, ...]


class Point(Record):
    """A step that was seen. Scripts may count steps from the start of each epoch."""

    at: float  # seconds since the start of the run
    step: int | None
    epoch: int | None = None
    steps: int | None = None  # per epoch

    @property
    def order(self) -> tuple[int, int]:
        """Return a key that sorts points by progress."""
        return self.epoch or 0, self.step or 0


class Lapse(Record):
    """A time without a step that is longer than a usual step: `evaluating`, `saving` or `idle`."""

    kind: str
    start: float
    end: float


class Steps(Record):
    """The steps of one uptime, as far as they were seen."""

    first: Point
    last: Point
    regained: Point | None = None  # the first step that no earlier uptime had reached
    is_known: bool = True  # False: `regained` may be None only because not the whole log was read
    stride: int = 1  # steps from one seen step to the next
    lapses: tuple[Lapse, ...] = ()  # between the first step and the last, in order
    usual_seconds: float | None = None  # from one seen step to the next; None if too few were seen
    then: str = "idle"  # the kind of the lapse after the last step


class RestartCost(Record):
    """The steps that have to be taken again after a restart, or the epochs of a script that names no steps."""

    attempt: int  # the attempt after the restart
    steps: int | None  # None if not known, or not known yet
    epochs: int | None = None
    incarnation: int = 0  # of the chief, if it restarted alone


class Goodput(Record):
    """How the time was spent, in seconds; a field is None if it is not known because no steps can be read."""

    seconds: float
    waiting_seconds: float
    starting_seconds: float | None
    productive_seconds: float | None
    recomputed_seconds: float | None
    down_seconds: float
    recomputed_steps: int | None
    restarts: tuple[RestartCost, ...]
    evaluating_seconds: float = 0.0
    saving_seconds: float = 0.0
    idle_seconds: float = 0.0

    @property
    def share(self) -> float | None:
        """Return the productive share of the time, from 0.0 to 1.0; None if it is not known."""
        return None if self.productive_seconds is None or not self.seconds else self.productive_seconds / self.seconds


class _Kind:
    WAITING, UP, DOWN = "waiting", "up", "down"


def make_timeline(plan: Plan, events: Iterable[TimedEvent], now: float) -> Timeline:
    """Divide the time of a run at placements, failures and restarts; `now` counts only while the run is not over."""
    state, kind, since, incarnation = new_run(plan), _Kind.WAITING, 0.0, 0
    spent: dict[str, list[float]] = {_Kind.WAITING: [], _Kind.DOWN: []}
    uptimes: list[Uptime] = []
    over_at: float | None = None
    for event in events:
        before = state
        folded = fold_entry(before, event.event, event.decisions)
        state, before_restart = folded.state, folded.before_restart
        if before.phase.is_final and state.phase.is_final:
            continue
        restarted = state.attempt != before.attempt
        at = max(since, event.at)
        if kind is _Kind.UP and (ending := before_restart.ending):
            failed_at = _event_time(event, ending.at_seconds, since)
            is_hung = ending.cause is not None and ending.cause.failure == "hang"
            uptimes.append(Uptime(before.attempt, since, failed_at, is_hung, incarnation))
            kind, since = _Kind.DOWN, failed_at
        elif kind is _Kind.UP and plan.chief in state.reviving:
            failed_at = _event_time(event, state.revivals[-1].at_seconds, since)
            uptimes.append(Uptime(state.attempt, since, failed_at, incarnation=incarnation))
            kind, since = _Kind.DOWN, failed_at
        after = _kind_of(plan, state)
        if after != kind or restarted:
            # A placement that was not used counts as waiting.
            spent[_Kind.WAITING if kind is _Kind.UP else kind].append(at - since)
            kind, since = after, at
            chief = state.replicas.get(plan.chief) if plan.chief else None
            incarnation = chief.incarnation if chief else 0
        over_at = at if state.phase.is_final else None  # the time until a run is resumed counts as down
    now = now if over_at is None else over_at
    if kind is _Kind.UP:
        uptimes.append(Uptime(state.attempt, since, max(since, now), incarnation=incarnation))
    else:
        spent[kind].append(max(0.0, now - since))
    return Timeline(max(since, now), fsum(spent[_Kind.WAITING]), fsum(spent[_Kind.DOWN]), tuple(uptimes))


def account_time(timeline: Timeline, steps: Mapping[Key, Steps]) -> Goodput:
    """Divide each uptime by the steps that were seen in it.

    If no uptime has steps, most fields are None. If only some have steps, the others failed before their first step.
    """
    starting: list[float] = []
    recomputed: list[float] = []
    productive: list[float] = []
    down = [timeline.down_seconds]
    without: dict[str, list[float]] = {kind: [] for kind in LAPSES}
    known, repeated = bool(steps), 0
    reached: Point | None = None
    counted = True
    for uptime in timeline.uptimes:
        seen = steps.get(uptime.key)
        if seen is None:
            starting.append(uptime.end - uptime.start)
            continue
        first, end = _within(seen.first.at, uptime), uptime.end
        if uptime.is_hung:
            end = max(first, _within(seen.last.at, uptime))
            down.append(uptime.end - end)
        starting.append(first - uptime.start)
        since: float | None = None  # when the first new step was taken
        if reached is None or seen.first.order > reached.order:
            since = first
        elif seen.regained or seen.is_known:
            regained = min(end, max(first, _within(seen.regained.at, uptime))) if seen.regained else end
            recomputed.append(regained - first)
            since = regained
            taken = _count(seen, min(reached, seen.last, key=_order))
            counted, repeated = counted and taken is not None, repeated + (taken or 0)
        else:
            known = False
        if since is not None:
            for lapse in sorted(_lapses(seen, end), key=lambda lapse: lapse.start):
                start = min(end, max(since, lapse.start))
                productive.append(start - since)
                since = max(start, min(end, lapse.end))
                without[lapse.kind].append(since - start)
            productive.append(end - since)
        reached = seen.last if reached is None else max(reached, seen.last, key=_order)
    return Goodput(
        seconds=timeline.seconds,
        waiting_seconds=timeline.waiting_seconds,
        starting_seconds=fsum(starting) if steps or not timeline.uptimes else None,
        productive_seconds=fsum(productive) if known or not timeline.uptimes else None,
        recomputed_seconds=fsum(recomputed) if known or not timeline.uptimes else None,
        down_seconds=fsum(down),
        recomputed_steps=repeated if counted and (steps or not timeline.uptimes) else None,
        restarts=tuple(
            restart_cost(again.attempt, steps.get(before.key), steps.get(again.key)).replace(
                incarnation=again.incarnation
            )
            for before, again in pairwise(timeline.uptimes)
        ),
        evaluating_seconds=fsum(without["evaluating"]),
        saving_seconds=fsum(without["saving"]),
        idle_seconds=fsum(without["idle"]),
    )


def find_lapses(points: Sequence[Point], kind_before: Callable[[int], str]) -> tuple[tuple[Lapse, ...], float | None]:
    """Return the lapses between points, and the usual time in seconds between two points; None if there are too few.

    The usual time of a step is the time that nine in ten steps do not exceed. `kind_before` returns the kind of the
    lapse before the point with this number.
    """
    gaps = [(max(0.0, after.at - before.at), _steps_between(before, after)) for before, after in pairwise(points)]
    if len(gaps) < _FEWEST_GAPS:
        return (), None
    paces = sorted((gap / taken, taken) for gap, taken in gaps)
    counted = list(accumulate(taken for _, taken in paces))
    usual = paces[bisect_left(counted, counted[-1] * 9 // 10)][0]
    return tuple(
        Lapse(kind_before(number), points[number].at - gap + usual * taken, points[number].at)
        for number, (gap, taken) in enumerate(gaps, 1)
        if _is_lapse(gap, usual * taken)
    ), usual * sorted(taken for _, taken in gaps)[len(gaps) // 2]


def _steps_between(before: Point, after: Point) -> int:
    """Return the number of steps between two points, at least 1; 1 if it is not known."""
    return max(1, _distance(before, after) or 1)


def _lapses(seen: Steps, end: float) -> Iterator[Lapse]:
    """Yield the lapses of an uptime that ends at `end`, including the lapse after its last step."""
    yield from seen.lapses
    if seen.usual_seconds is not None and _is_lapse(end - seen.last.at, seen.usual_seconds):
        yield Lapse(seen.then, seen.last.at + seen.usual_seconds, end)


def _is_lapse(gap: float, usual: float) -> bool:
    return gap >= max(_SHORTEST_LAPSE_SECONDS, _TIMES_USUAL * usual)


def _kind_of(plan: Plan, state: RunState) -> str:
    if state.ending or plan.chief in state.reviving:
        return _Kind.DOWN
    return _Kind.UP if state.phase in (Phase.STARTING, Phase.RUNNING) else _Kind.WAITING


def _event_time(event: TimedEvent, at_seconds: float | None, since: float) -> float:
    """Return when an event happened, in seconds since the start of the run.

    If that is not known, or not between `since` and the time of the record, return the time of the record.
    """
    if at_seconds is None:
        return max(since, event.at)
    happened_at = event.at - (event.since_boot - at_seconds)
    return happened_at if since <= happened_at <= event.at else max(since, event.at)


def _within(at: float, uptime: Uptime) -> float:
    return min(uptime.end, max(uptime.start, at))


def _order(point: Point) -> tuple[int, int]:
    return point.order


def restart_cost(attempt: int, before: Steps | None, seen: Steps | None) -> RestartCost:
    """Return how many steps or epochs this attempt has to take again, from the steps seen before and in it."""
    if seen is None:
        return RestartCost(attempt, None)
    if before is None:
        return RestartCost(attempt, 0)  # the uptime before the restart failed before its first step
    low, high = seen.first, before.last
    if low.step is None and high.step is None and low.epoch is not None and high.epoch is not None:
        return RestartCost(attempt, None, max(0, high.epoch - low.epoch + 1))
    return RestartCost(attempt, _count(seen, high))


def _count(seen: Steps, until: Point) -> int | None:
    """Return the number of steps of an uptime up to this point; its first step was one stride before the first seen."""
    between = _distance(seen.first, until)
    return None if between is None else max(0, between + seen.stride)


def _distance(low: Point, high: Point) -> int | None:
    """Return the number of steps between two points; None if it depends on the unknown length of an epoch."""
    if low.step is None or high.step is None:
        return None
    if low.epoch == high.epoch:
        return high.step - low.step
    if low.epoch is None or high.epoch is None or low.steps is None or low.steps != high.steps:
        return None
    return (high.epoch - low.epoch) * low.steps + high.step - low.step
