"""Where the time of a run went: every second of its life is of exactly one kind, and they add up to it.

Waiting: for room, for what is built, for the end of a backoff. Starting: from a placement to the first step that was
seen of it. Recomputed: spent on steps that had been taken before. Productive: in which steps were taken, or which a
step of usual length explains. Evaluating, saving: between steps, by what the log says there. Idle: without a step, and
nothing explains it. Down: from the end of the training, until the next attempt may begin or the run is over.
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
_SHORTEST_LAPSE_SECONDS, _TIMES_USUAL = 1.0, 3.0  # what is shorter is noise: steps are dated to a quarter of a second


class TimedEvent(Record):
    """An event, when in the run's life it was written down (seconds), and when by the clock that events go by."""

    at: float
    since_boot: float
    event: Event
    decisions: tuple[Decision, ...] = ()


class Uptime(Record):
    """A time in which a line was up: from its placement to its fall, or to where it is now.

    In a line whose chief may return alone, each of the chief's lives is one.
    """

    attempt: int
    start: float
    end: float
    is_hung: bool = False  # what came behind its last step was no training
    incarnation: int = 0

    @property
    def key(self) -> Key:
        """Which attempt it was, and which life of the chief."""
        return self.attempt, self.incarnation


Key = tuple[int, int]


class Timeline(Record):
    """A run's life in pieces; what a stretch was good for only its steps can tell."""

    seconds: float
    waiting_seconds: float
    down_seconds: float
    stretches: tuple[Uptime, ...]


class Point(Record):
    """A step that was seen, and when in the run's life; steps may begin anew with each epoch."""

    at: float
    step: int | None
    epoch: int | None = None
    steps: int | None = None  # of an epoch

    @property
    def order(self) -> tuple[int, int]:
        """How far it is; a later one has more."""
        return self.epoch or 0, self.step or 0


class Lapse(Record):
    """A time without a step, beyond what a step usually takes: `evaluating`, `saving` or `idle`."""

    kind: str
    start: float
    end: float


class Steps(Record):
    """The steps of one stretch, as far as they were seen."""

    first: Point
    last: Point
    regained: Point | None = None  # the first that is not behind what was reached before
    is_known: bool = True  # whether that `regained` is None says that there was none
    stride: int = 1  # how many steps lie between two that are seen
    lapses: tuple[Lapse, ...] = ()  # between the first step and the last, in order
    usual_seconds: float | None = None  # between two steps that are seen; None if there were too few
    then: str = "idle"  # what follows the last step: a kind of lapse


class RestartCost(Record):
    """What a restart cost: how many steps its attempt has to take again; None if nobody can tell, or not yet.

    Of a script that names no steps, how many epochs.
    """

    attempt: int
    steps: int | None
    epochs: int | None = None
    incarnation: int = 0  # of the chief, if it returned alone


class Goodput(Record):
    """Where the time went, in seconds; None is what cannot be told, since no steps can be read."""

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
        """How much of the time was productive: 1.0 is all of it."""
        return None if self.productive_seconds is None or not self.seconds else self.productive_seconds / self.seconds


class _Kind:
    WAITING, UP, DOWN = "waiting", "up", "down"


def make_timeline(plan: Plan, happenings: Iterable[TimedEvent], now: float) -> Timeline:
    """Cut a run's life, up to its end or to now, where it was placed, where it fell and where it could go on."""
    state, kind, since, life = new_run(plan), _Kind.WAITING, 0.0, 0
    spent: dict[str, list[float]] = {_Kind.WAITING: [], _Kind.DOWN: []}
    stretches: list[Uptime] = []
    over_at: float | None = None
    for happening in happenings:
        before = state
        folded = fold_entry(before, happening.event, happening.decisions)
        state, own = folded.state, folded.before_restart
        if before.phase.is_final and state.phase.is_final:
            continue
        restarted = state.attempt != before.attempt
        at = max(since, happening.at)
        if kind is _Kind.UP and own.ending:
            fell = _event_time(happening, own.ending.at_seconds, since)
            is_hung = own.ending.cause is not None and own.ending.cause.failure == "hang"
            stretches.append(Uptime(before.attempt, since, fell, is_hung, life))
            kind, since = _Kind.DOWN, fell
        elif kind is _Kind.UP and plan.chief in state.reviving:
            fell = _event_time(happening, state.revivals[-1].at_seconds, since)
            stretches.append(Uptime(state.attempt, since, fell, incarnation=life))
            kind, since = _Kind.DOWN, fell
        after = _kind_of(plan, state)
        if after != kind or restarted:
            # A placement that nobody came to use was a wait.
            spent[_Kind.WAITING if kind is _Kind.UP else kind].append(at - since)
            kind, since = after, at
            chief = state.replicas.get(plan.chief) if plan.chief else None
            life = chief.incarnation if chief else 0
        over_at = at if state.phase.is_final else None  # of a run that is resumed, the time in between is down
    now = now if over_at is None else over_at
    if kind is _Kind.UP:
        stretches.append(Uptime(state.attempt, since, max(since, now), incarnation=life))
    else:
        spent[kind].append(max(0.0, now - since))
    return Timeline(max(since, now), fsum(spent[_Kind.WAITING]), fsum(spent[_Kind.DOWN]), tuple(stretches))


def account_time(timeline: Timeline, steps: Mapping[Key, Steps]) -> Goodput:
    """Say what each stretch was good for, by the steps that were seen of it.

    One without steps fell before its first, if others have some; if none has, nobody knows.
    """
    starting: list[float] = []
    recomputed: list[float] = []
    productive: list[float] = []
    down = [timeline.down_seconds]
    without: dict[str, list[float]] = {kind: [] for kind in LAPSES}
    known, repeated = bool(steps), 0
    reached: Point | None = None
    counted = True
    for stretch in timeline.stretches:
        seen = steps.get(stretch.key)
        if seen is None:
            starting.append(stretch.end - stretch.start)
            continue
        first, end = _within(seen.first.at, stretch), stretch.end
        if stretch.is_hung:
            end = max(first, _within(seen.last.at, stretch))
            down.append(stretch.end - end)
        starting.append(first - stretch.start)
        since: float | None = None  # when steps began that had not been taken before
        if reached is None or seen.first.order > reached.order:
            since = first
        elif seen.regained or seen.is_known:
            regained = min(end, max(first, _within(seen.regained.at, stretch))) if seen.regained else end
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
        starting_seconds=fsum(starting) if steps or not timeline.stretches else None,
        productive_seconds=fsum(productive) if known or not timeline.stretches else None,
        recomputed_seconds=fsum(recomputed) if known or not timeline.stretches else None,
        down_seconds=fsum(down),
        recomputed_steps=repeated if counted and (steps or not timeline.stretches) else None,
        restarts=tuple(
            restart_cost(again.attempt, steps.get(before.key), steps.get(again.key)).replace(
                incarnation=again.incarnation
            )
            for before, again in pairwise(timeline.stretches)
        ),
        evaluating_seconds=fsum(without["evaluating"]),
        saving_seconds=fsum(without["saving"]),
        idle_seconds=fsum(without["idle"]),
    )


def find_lapses(points: Sequence[Point], says: Callable[[int], str]) -> tuple[tuple[Lapse, ...], float | None]:
    """Return the lapses between points, and how long it usually takes to the next one.

    A gap is of usual length if its steps take no longer than nine in ten steps do. `says` names the kind of the gap
    before a point.
    """
    gaps = [(max(0.0, after.at - before.at), _steps_between(before, after)) for before, after in pairwise(points)]
    if len(gaps) < _FEWEST_GAPS:
        return (), None
    paces = sorted((gap / taken, taken) for gap, taken in gaps)
    counted = list(accumulate(taken for _, taken in paces))
    usual = paces[bisect_left(counted, counted[-1] * 9 // 10)][0]
    return tuple(
        Lapse(says(number), points[number].at - gap + usual * taken, points[number].at)
        for number, (gap, taken) in enumerate(gaps, 1)
        if _is_lapse(gap, usual * taken)
    ), usual * sorted(taken for _, taken in gaps)[len(gaps) // 2]


def _steps_between(before: Point, after: Point) -> int:
    """How many steps lie between two points, as far as that is known; one at least."""
    return max(1, _distance(before, after) or 1)


def _lapses(seen: Steps, end: float) -> Iterator[Lapse]:
    """The lapses of a stretch that ends here, with that behind its last step."""
    yield from seen.lapses
    if seen.usual_seconds is not None and _is_lapse(end - seen.last.at, seen.usual_seconds):
        yield Lapse(seen.then, seen.last.at + seen.usual_seconds, end)


def _is_lapse(gap: float, usual: float) -> bool:
    return gap >= max(_SHORTEST_LAPSE_SECONDS, _TIMES_USUAL * usual)


def _kind_of(plan: Plan, state: RunState) -> str:
    if state.ending or plan.chief in state.reviving:
        return _Kind.DOWN
    return _Kind.UP if state.phase in (Phase.STARTING, Phase.RUNNING) else _Kind.WAITING


def _event_time(happening: TimedEvent, at_seconds: float | None, since: float) -> float:
    """When something came to pass that was written down later; a stamp that cannot be is not believed."""
    if at_seconds is None:
        return max(since, happening.at)
    came = happening.at - (happening.since_boot - at_seconds)
    return came if since <= came <= happening.at else max(since, happening.at)


def _within(at: float, stretch: Uptime) -> float:
    return min(stretch.end, max(stretch.start, at))


def _order(point: Point) -> tuple[int, int]:
    return point.order


def restart_cost(attempt: int, before: Steps | None, seen: Steps | None) -> RestartCost:
    """What has to be done again in this attempt that had been done before."""
    if seen is None:
        return RestartCost(attempt, None)
    if before is None:
        return RestartCost(attempt, 0)  # it fell before its first step
    low, high = seen.first, before.last
    if low.step is None and high.step is None and low.epoch is not None and high.epoch is not None:
        return RestartCost(attempt, None, max(0, high.epoch - low.epoch + 1))
    return RestartCost(attempt, _count(seen, high))


def _count(seen: Steps, until: Point) -> int | None:
    """How many steps of a stretch are not behind this one; it began one stride before the first that was seen."""
    between = _distance(seen.first, until)
    return None if between is None else max(0, between + seen.stride)


def _distance(low: Point, high: Point) -> int | None:
    """How many steps lie between two; None where that depends on how many an epoch has, which nobody said."""
    if low.step is None or high.step is None:
        return None
    if low.epoch == high.epoch:
        return high.step - low.step
    if low.epoch is None or high.epoch is None or low.steps is None or low.steps != high.steps:
        return None
    return (high.epoch - low.epoch) * low.steps + high.step - low.step
