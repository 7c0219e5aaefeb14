"""Goodput: the time of a run by kind, for single histories and for random ones."""

from __future__ import annotations

from itertools import accumulate
from math import isclose
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.plan.types import Plan, ReplicaId
from drumline.run.event import (
    AttemptDelayed,
    AttemptPlaced,
    DelayChosen,
    Event,
    Exit,
    FirstStepTaken,
    ReplicaExited,
    ReplicaStarted,
    RunAccepted,
    TimerFired,
)
from drumline.run.goodput import (
    LAPSES,
    Goodput,
    Lapse,
    Point,
    RestartCost,
    Steps,
    TimedEvent,
    account_time,
    find_lapses,
    make_timeline,
)
from scaffold.decisions import decided
from scaffold.effort import examples
from scaffold.gangs import gang
from scaffold.simulation import SimulatedRun
from unit.run.test_machine_properties import plans, simulate

FIRST, SECOND = ReplicaId("worker", 0), ReplicaId("worker", 1)
PLACED, BACK = AttemptPlaced(0, ("a:1",)), AttemptPlaced(1, ("a:1",))


def exits(at: float, exit_: Exit, attempt: int = 0, replica: ReplicaId = FIRST) -> ReplicaExited:
    return ReplicaExited(replica, attempt, 0, exit_, at)


def timed_events(plan: Plan, events: list[tuple[float, Event]]) -> list[TimedEvent]:
    """Return events that were recorded at these seconds, each with its decisions."""
    with_decisions = decided(plan, [event for _, event in events])
    return [TimedEvent(at, at, *each) for (at, _), each in zip(events, with_decisions, strict=True)]


def goodput_of(
    plan: Plan, events: list[tuple[float, Event]], now: float, steps: dict[int, Steps] | None = None
) -> Goodput:
    """Return the goodput of a run with events that were recorded at these seconds."""
    timeline = make_timeline(plan, timed_events(plan, events), now)
    return account_time(timeline, {(attempt, 0): each for attempt, each in (steps or {}).items()})


def steps_of(*points: tuple[float, int], regained: float | None = None, stride: int = 1) -> Steps:
    (at, first), (last_at, last) = points[0], points[-1]
    again = None if regained is None else Point(regained, 0)
    return Steps(Point(at, first), Point(last_at, last), again, stride=stride)


# Placed after 2 s; fails at 20, which is recorded at 21; the next attempt ends at 40.
RESTARTED: list[tuple[float, Event]] = [
    (0, RunAccepted()),
    (2, PLACED),
    (3, ReplicaStarted(FIRST, 0)),
    (3, ReplicaStarted(SECOND, 0)),
    (21, exits(20, Exit(1))),
    (24, exits(24, Exit(signal=15), replica=SECOND)),
    (25, BACK),
    (26, ReplicaStarted(FIRST, 1)),
    (26, ReplicaStarted(SECOND, 1)),
    (40, exits(40, Exit(0), 1)),
    (40, exits(40, Exit(0), 1, SECOND)),
]
TWO = gang("worker*2 crash=1 early=1")


def test_a_restart_costs_the_time_to_stop_to_start_and_to_recompute() -> None:
    steps = {0: steps_of((5, 1), (19, 30)), 1: steps_of((28, 21), (39, 60), regained=31)}
    goodput = goodput_of(TWO, RESTARTED, 40, steps)
    assert goodput.seconds == 40
    assert goodput.waiting_seconds == 2 + 1
    assert goodput.starting_seconds == 3 + 3
    assert goodput.down_seconds == 4
    assert goodput.recomputed_seconds == 3
    assert goodput.productive_seconds == 15 + 9
    assert goodput.recomputed_steps == 10
    assert goodput.restarts == (RestartCost(1, 10, None, 0),)
    assert goodput.share == 24 / 40


def test_without_steps_only_waiting_and_down_time_are_known() -> None:
    goodput = goodput_of(TWO, RESTARTED, 40)
    assert (goodput.waiting_seconds, goodput.down_seconds) == (3, 4)
    assert (goodput.starting_seconds, goodput.productive_seconds, goodput.recomputed_seconds) == (None, None, None)
    assert (goodput.recomputed_steps, goodput.restarts, goodput.share) == (None, (RestartCost(1, None, None, 0),), None)


def test_an_attempt_without_a_step_was_starting_if_others_have_steps() -> None:
    goodput = goodput_of(TWO, RESTARTED, 40, {1: steps_of((28, 1), (39, 60))})
    assert goodput.starting_seconds == 18 + 3
    assert (goodput.recomputed_steps, goodput.restarts) == (0, (RestartCost(1, 0, None, 0),))
    failed_again = goodput_of(TWO, RESTARTED, 40, {0: steps_of((5, 1), (19, 30))})
    assert (failed_again.starting_seconds, failed_again.restarts) == (3 + 15, (RestartCost(1, None, None, 0),))


def test_an_attempt_that_did_not_get_as_far_as_the_one_before_was_recomputing() -> None:
    goodput = goodput_of(TWO, RESTARTED, 40, {0: steps_of((5, 1), (19, 30)), 1: steps_of((28, 21), (39, 25))})
    assert (goodput.recomputed_seconds, goodput.productive_seconds) == (12, 15)
    assert (goodput.recomputed_steps, goodput.restarts) == (5, (RestartCost(1, 10, None, 0),))


def test_if_the_first_new_step_is_not_known_no_time_is_productive() -> None:
    steps = {0: steps_of((5, 1), (19, 30)), 1: steps_of((28, 21), (39, 60)).replace(is_known=False)}
    goodput = goodput_of(TWO, RESTARTED, 40, steps)
    assert (goodput.recomputed_seconds, goodput.productive_seconds) == (None, None)
    assert (goodput.starting_seconds, goodput.restarts) == (6, (RestartCost(1, 10, None, 0),))


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (Point(19, 90), Steps(Point(28, 60), Point(39, 99), stride=10), (40, None)),
        (Point(19, 5, 2, 100), Steps(Point(28, 1, 2, 100), Point(39, 9, 2, 100)), (5, None)),
        (Point(19, 5, 3, 100), Steps(Point(28, 1, 2, 100), Point(39, 9, 4, 100)), (105, None)),
        (Point(19, 5, 3), Steps(Point(28, 1, 2), Point(39, 9, 4)), (None, None)),
        (Point(19, None, 3), Steps(Point(28, None, 3), Point(39, None, 4)), (None, 1)),
        (Point(19, 5), Steps(Point(28, 6), Point(39, 9)), (0, None)),
        (Point(19, None, 3), Steps(Point(28, None, 5), Point(39, None, 6)), (None, 0)),
        (Point(19, None, 3), Steps(Point(28, 1, 3), Point(39, 9, 3)), (None, None)),
    ],
    ids=[
        "every tenth",
        "in an epoch",
        "over an epoch",
        "of unknown length",
        "only epochs",
        "nothing lost",
        "no epoch lost",
        "steps only after",
    ],
)
def test_steps_are_counted_over_epochs_where_their_length_is_known(
    before: Point, after: Steps, lost: tuple[int | None, int | None]
) -> None:
    goodput = goodput_of(TWO, RESTARTED, 40, {0: Steps(before.replace(at=5), before), 1: after})
    assert [(loss.steps, loss.epochs) for loss in goodput.restarts] == [lost]


def test_waiting_is_for_resources_and_for_the_end_of_a_backoff() -> None:
    events: list[tuple[float, Event]] = [
        (0, RunAccepted()),
        (1, AttemptDelayed(0, "for room")),
        (10, PLACED),
        (10, ReplicaStarted(FIRST, 0)),
        (11, exits(11, Exit(1))),
        (11, BACK),
        (11, ReplicaStarted(FIRST, 1)),
        (12, exits(12, Exit(1), 1)),
        (12, DelayChosen(2, 5.0)),
        (17, TimerFired("delay", 2)),
        (18, AttemptPlaced(2, ("a:1",))),
        (18, ReplicaStarted(FIRST, 2)),
    ]
    goodput = goodput_of(gang("worker crash=2 early=2"), events, 30)
    assert (goodput.seconds, goodput.waiting_seconds, goodput.down_seconds) == (30, 10 + 6, 0)


def test_a_placement_that_was_not_used_counts_as_waiting() -> None:
    delayed = AttemptDelayed(0, "for room")
    events: list[tuple[float, Event]] = [(0, RunAccepted()), (1, PLACED), (3, delayed), (9, PLACED)]
    assert goodput_of(gang("worker"), events, 9).waiting_seconds == 9


def test_a_chief_that_returns_alone_costs_time_and_a_worker_that_returns_does_not() -> None:
    plan = gang("chief worker ps crash=2")
    chief, ps = ReplicaId("chief", 0), ReplicaId("ps", 0)
    events: list[tuple[float, Event]] = [
        (0, RunAccepted()),
        (1, AttemptPlaced(0, ("a:1", "a:2", "a:3"))),
        *((2.0, ReplicaStarted(name, 0)) for name in (chief, FIRST, ps)),
        (4, FirstStepTaken(0, chief, 1, 4.0)),
        (6, exits(6, Exit(signal=9))),
        (7, ReplicaStarted(FIRST, 0, 1)),
        (11, exits(10, Exit(signal=9), replica=chief)),
        (12, DelayChosen(0, 2.0)),
        (14, TimerFired("hold 2", 0)),
        (15, ReplicaStarted(chief, 0, 1)),
    ]
    timeline = make_timeline(plan, timed_events(plan, events), 30)
    assert [each.key for each in timeline.uptimes] == [(0, 0), (0, 1)]
    goodput = account_time(
        timeline, {(0, 0): steps_of((4, 1), (9, 20)), (0, 1): steps_of((17, 11), (29, 40), regained=20)}
    )
    assert (goodput.seconds, goodput.waiting_seconds, goodput.down_seconds) == (30, 1, 4)
    assert (goodput.starting_seconds, goodput.recomputed_seconds, goodput.productive_seconds) == (3 + 3, 3, 6 + 10)
    assert goodput.restarts == (RestartCost(0, 10, None, 1),)


def test_a_run_that_has_not_been_placed_has_only_waited() -> None:
    goodput = goodput_of(gang("worker"), [(0, RunAccepted())], 7)
    assert goodput == Goodput(7, 7, 0, 0, 0, 0, 0, ())


def test_a_failure_without_a_supervisor_counts_from_its_time() -> None:
    events: list[tuple[float, Event]] = [(0, RunAccepted()), (0, PLACED), (0, ReplicaStarted(FIRST, 0))]
    events.append((500, exits(20, Exit(1))))
    goodput = goodput_of(gang("worker"), events, 500, {0: steps_of((5, 1), (19, 30))})
    assert (goodput.productive_seconds, goodput.down_seconds) == (15, 480)


def test_steps_are_compared_by_epoch_first() -> None:
    steps = {0: Steps(Point(5, 1, 3), Point(19, 5, 3)), 1: Steps(Point(28, 9, 2), Point(39, 6, 3), Point(31, 5, 3))}
    goodput = goodput_of(TWO, RESTARTED, 40, steps)
    assert (goodput.recomputed_seconds, goodput.recomputed_steps) == (3, None)
    assert Point(0, None).order == Point(0, 0, 0).order < Point(0, 1).order < Point(0, None, 1).order


def test_the_last_step_of_the_attempt_before_is_recomputed_too() -> None:
    goodput = goodput_of(
        TWO, RESTARTED, 40, {0: steps_of((5, 1), (19, 30)), 1: steps_of((28, 30), (39, 60), regained=31)}
    )
    assert (goodput.recomputed_seconds, goodput.recomputed_steps) == (3, 1)


def lapses_after(*gaps: float, taken: int = 1) -> tuple[tuple[Lapse, ...], float | None]:
    """Return the lapses of steps that follow each other after these seconds, and the usual time of a step."""
    points = [Point(at, number * taken) for number, at in enumerate(accumulate(gaps, initial=0.0))]
    return find_lapses(points, lambda number: LAPSES[number % 3])


def test_a_gap_is_a_lapse_from_three_times_what_nine_in_ten_steps_take() -> None:
    steady = [1.0] * 8
    assert lapses_after(*steady, 2.0, 6.0) == ((Lapse("saving", 12.0, 16.0),), 2.0)
    assert lapses_after(*steady, 2.0, 5.9) == ((), 2.0)
    assert lapses_after(6.0, *steady, 2.0) == ((Lapse("saving", 2.0, 6.0),), 2.0)


def test_a_gap_of_less_than_a_second_is_no_lapse_however_quick_the_steps_are() -> None:
    assert lapses_after(*[0.25] * 10, 0.75) == ((), 0.25)
    assert lapses_after(*[0.25] * 10, 1.0) == ((Lapse("idle", 2.75, 3.5),), 0.25)


def test_the_usual_time_is_known_from_three_steps_on() -> None:
    assert lapses_after() == ((), None)
    assert lapses_after(9.0) == ((), None)
    assert lapses_after(2.0, 2.0) == ((), 2.0)


def test_the_usual_time_is_that_to_the_next_step_that_is_recorded() -> None:
    assert lapses_after(5.0, 5.0, taken=10) == ((), 5.0)
    points = [Point(float(step), step) for step in (0, 1, 2, 12, 22, 32)]
    assert find_lapses(points, lambda _: "idle") == ((), 10.0)


@pytest.mark.parametrize("last", [20, 21])
def test_the_limit_of_a_gap_depends_on_its_steps_which_are_one_at_least(last: int) -> None:
    points = [Point(0.0, 0), Point(10.0, 10), Point(20.0, 20), Point(28.0, last)]
    assert find_lapses(points, lambda _: "idle") == ((Lapse("idle", 21.0, 28.0),), 10.0)


def test_a_clock_that_was_set_back_makes_no_lapse() -> None:
    assert find_lapses([Point(at, step) for step, at in enumerate((9.0, 3.0, 4.0, 5.0))], str) == ((), 1.0)


def test_time_after_the_last_step_is_a_lapse_beyond_the_usual_time() -> None:
    placed: list[tuple[float, Event]] = [(0, RunAccepted()), (0, PLACED), (0, ReplicaStarted(FIRST, 0))]
    for end, idle in ((10.0, 0.0), (11.0, 4.0)):
        steps = steps_of((1, 1), (5, 5)).replace(usual_seconds=2.0)
        goodput = goodput_of(gang("worker"), placed, end, {0: steps})
        assert (goodput.idle_seconds, goodput.productive_seconds) == (idle, end - 1 - idle)


@given(plans(), st.integers())
@settings(max_examples=examples(60), deadline=None)
def test_the_kinds_of_time_of_any_run_add_up_to_its_duration(plan: Plan, seed: int) -> None:
    random = Random(seed)
    simulated = SimulatedRun(plan)
    simulate(simulated, random)
    at, timed_events = 0.0, list[TimedEvent]()
    for each in decided(plan, simulated.journal):
        at += random.random()
        timed_events.append(TimedEvent(at, random.uniform(0, 100), *each))
    timeline = make_timeline(plan, timed_events, at + 1)
    keys = [each.key for each in timeline.uptimes]
    assert len(set(keys)) == len(keys)
    some = {key: any_steps(random, at) for key in keys if random.random() < 0.8}
    goodput = account_time(timeline, some)
    kinds = (goodput.starting_seconds, goodput.productive_seconds, goodput.recomputed_seconds)
    without = (goodput.evaluating_seconds, goodput.saving_seconds, goodput.idle_seconds)
    known = [kind for kind in (goodput.waiting_seconds, goodput.down_seconds, *without, *kinds) if kind is not None]
    assert all(kind >= 0 for kind in known)
    if None not in kinds:
        assert isclose(sum(known), goodput.seconds, abs_tol=1e-6)


def any_steps(random: Random, until: float) -> Steps:
    first, last = sorted((random.uniform(0, until), random.uniform(0, until)))
    low, high = sorted((random.randrange(50), random.randrange(50)))
    again = Point(random.uniform(first, last), high) if random.random() < 0.5 else None
    times = sorted(random.uniform(first, last) for _ in range(6))
    lapses = tuple(Lapse(random.choice(LAPSES), times[number], times[number + 1]) for number in (0, 1, 3))
    usual = random.choice((None, 0.1, 2.0))
    return Steps(Point(first, low), Point(last, high), again, lapses=lapses, usual_seconds=usual)
