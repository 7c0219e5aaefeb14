"""The contract with the next supervisor: no replica starts twice, and no end is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.run.event import Exit
from scaffold.supervised import watch, worker
from scaffold.testbeds import RUNS_UNTIL_STOPPED, Behavior, EngineTestBed

DEAF = Behavior(("ready",), until=RUNS_UNTIL_STOPPED.until, obeys=False)


def test_a_running_replica_is_adopted_and_not_started_again(testbed: EngineTestBed, tmp_path: Path) -> None:
    first = watch(testbed, tmp_path, Behavior(("here",), until=1, code=4), Behavior(("here",), until=1, code=5))
    first.start()
    for index in (0, 1):
        first.until_said("here", replica=worker(index))
    second = first.again(testbed)
    second.start()
    second.until_started()
    assert not second.ends()
    testbed.open(1)
    second.until_ended()
    assert second.exits() == {worker(0): Exit(code=4), worker(1): Exit(code=5)}
    assert len(second.starts()) == len(second.ends()) == 2
    assert (second.log(worker(0)), second.log(worker(1))) == ("here\n", "here\n")


@pytest.mark.parametrize("verb", ["start", "stop"])
def test_ends_between_two_supervisors_are_reported_in_the_order_in_which_they_came(
    testbed: EngineTestBed, tmp_path: Path, verb: str
) -> None:
    first = watch(testbed, tmp_path, *(Behavior(until=3 - index, code=index) for index in range(3)))
    first.start()
    first.until_started()
    for gate, index in ((1, 2), (2, 1), (3, 0)):
        testbed.open(gate)
        testbed.wait_ended(first.run_dir, worker(index))
    second = first.again(testbed)
    second.start() if verb == "start" else second.stop()
    second.until_ended()
    ends = second.ends()
    assert [(end.replica, end.exit) for end in ends] == [(worker(index), Exit(code=index)) for index in (2, 1, 0)]
    assert ends[0].at_seconds < ends[1].at_seconds < ends[2].at_seconds
    assert len(ends) == 3


def test_an_end_that_was_reported_is_reported_the_same_to_the_next_supervisor(
    testbed: EngineTestBed, tmp_path: Path
) -> None:
    first = watch(testbed, tmp_path, Behavior(code=3))
    first.start()
    first.until_ended()
    second = first.again(testbed)
    second.start()
    second.until_ended()
    assert second.ends() == first.ends()


def test_the_next_supervisor_completes_a_gang_that_was_not_all_started(testbed: EngineTestBed, tmp_path: Path) -> None:
    first = watch(testbed, tmp_path, *[Behavior(("here",), until=1)] * 3)
    launches = first.launches()
    first.loop.wait(first.session.start(launches[:1]))
    first.until_said("here")
    second = first.again(testbed)
    second.start()
    second.until_started()
    testbed.open(1)
    second.until_ended()
    assert [second.log(worker(index)) for index in range(3)] == ["here\n"] * 3
    assert len(second.starts()) == len(second.ends()) == 3


@pytest.mark.parametrize(("grace_seconds", "signal"), [(60, 15), (0, 9)])
def test_the_next_supervisor_can_stop_replicas_at_once(
    testbed: EngineTestBed, tmp_path: Path, grace_seconds: float, signal: int
) -> None:
    first = watch(testbed, tmp_path, RUNS_UNTIL_STOPPED, RUNS_UNTIL_STOPPED)
    first.start()
    first.until_started()
    second = first.again(testbed)
    second.stop(grace_seconds=grace_seconds)
    second.until_ended()
    assert set(second.exits().values()) == {Exit(signal=signal)}
    assert len(second.ends()) == 2


def test_the_next_supervisor_kills_where_the_first_had_only_terminated(testbed: EngineTestBed, tmp_path: Path) -> None:
    first = watch(testbed, tmp_path, DEAF)
    first.start()
    first.until_said("ready")
    first.stop()
    second = first.again(testbed)
    second.stop(grace_seconds=0.1)
    second.until_ended()
    assert [end.exit for end in second.ends()] == [Exit(signal=9)]
