"""When a run is stalled, by the gaps between its steps."""

from __future__ import annotations

import pytest

from drumline.plan.types import ReplicaId
from drumline.run.event import AttemptPlaced, ReplicaStarted, RunAccepted, StepsResumed, StepsStalled
from drumline.run.stall import Gaps, describe_stall, is_stalled, with_step
from scaffold.decisions import fold, step
from scaffold.gangs import gang


@pytest.mark.parametrize(("longest", "limit"), [(0.05, 60.0), (5.0, 60.0), (30.0, 300.0)])
def test_a_run_is_stalled_after_a_minute_or_ten_times_its_longest_gap(longest: float, limit: float) -> None:
    gaps = with_step(with_step(None, 100.0 - longest, 29), 100.0, 30)
    assert not is_stalled(gaps, 100.0 + limit - 0.1)
    assert is_stalled(gaps, 100.0 + limit)


def test_the_limit_includes_the_delay_with_which_steps_are_read() -> None:
    gaps = with_step(with_step(None, 99.0, 29), 100.0, 30)
    assert not is_stalled(gaps, 279.9, 120.0)
    assert is_stalled(gaps, 280.0, 120.0)


def test_one_step_gives_no_limit_for_the_next() -> None:
    assert not is_stalled(with_step(None, 100.0, 1), 1e6)


def test_the_gap_of_an_evaluation_raises_the_limit_for_the_next() -> None:
    gaps: Gaps | None = None
    for at in (0.0, 1.0, 41.0, 42.0):
        gaps = with_step(gaps, at, int(at))
    assert gaps == Gaps(42.0, 42, 40.0)


def test_the_longest_gap_may_be_shorter_than_a_second() -> None:
    assert with_step(with_step(None, 10.0, 1), 10.25, 2) == Gaps(10.25, 2, 0.25)


def test_a_run_is_stalled_until_its_next_step_and_does_not_end() -> None:
    plan = gang("worker*2")
    starts = (ReplicaStarted(each.id, 0) for each in plan.replicas)
    state = fold(plan, [RunAccepted(), AttemptPlaced(0, ("a:1", "a:2")), *starts])
    event = StepsStalled(0, 30, 100.0, 60.0, ReplicaId("worker", 1), "worker.1 is in spin (train.py:3)")
    state, actions = step(plan, state, event)
    assert (state.stalled, actions, state.ending) == (event, (), None)
    state, _ = step(plan, state, StepsResumed(0, 31, 200.0))
    assert state.stalled is None


def test_the_description_of_a_stall_has_its_time_step_and_place() -> None:
    event = StepsStalled(0, 30, 100.0, 240.0, None, "worker.1 is in spin (train.py:3)")
    assert describe_stall(event) == "no step for 4m, since step 30; worker.1 is in spin (train.py:3)"
    assert describe_stall(StepsStalled(0, None, 100.0, 60.0)) == "no step for 1m"
