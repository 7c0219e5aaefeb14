"""The contract of helpers, which prepare data before the gang starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.engine.abilities import Preparing
from drumline.plan.types import Plan, ReplicaId
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted, StopRequested
from drumline.run.state import Phase
from scaffold.supervised import FIRST, SessionRecorder, SupervisedRun, cast, require_ability
from scaffold.testbeds import RUNS_UNTIL_STOPPED, Behavior, EngineTestBed

HELPER = ReplicaId("prepare", 0)


def helped(testbed: EngineTestBed, behavior: Behavior) -> Plan:
    return cast(testbed, "prepare worker*2", {"prepare": behavior, "worker.0": Behavior(), "worker.1": Behavior()})


@pytest.mark.parametrize("code", [0, 3])
def test_a_helper_is_reported_as_a_replica_of_the_first_attempt(
    testbed: EngineTestBed, tmp_path: Path, code: int
) -> None:
    recorder = SessionRecorder(testbed, tmp_path / "run", helped(testbed, Behavior(("making",), until=1, code=code)))
    recorder.loop.wait(require_ability(recorder.session, Preparing).prepare(recorder.plan, HELPER))
    recorder.until_said("making", replica=HELPER)
    recorder.loop.wait(require_ability(recorder.session, Preparing).prepare(recorder.plan, HELPER))
    testbed.open(1)
    recorder.until(recorder.ends)
    recorder.run_other_replica()
    assert recorder.starts() == [HELPER]
    assert [(end.replica, end.exit) for end in recorder.ends()] == [(HELPER, Exit(code=code))]
    assert recorder.log(HELPER).count("making") == 1


def test_a_helper_is_stopped_like_a_replica(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = SessionRecorder(
        testbed, tmp_path / "run", helped(testbed, RUNS_UNTIL_STOPPED._replace(says=("making",)))
    )
    recorder.loop.wait(require_ability(recorder.session, Preparing).prepare(recorder.plan, HELPER))
    recorder.until_said("making", replica=HELPER)
    recorder.stop(HELPER)
    recorder.until(recorder.ends)
    recorder.run_other_replica()
    assert [(end.replica, end.exit) for end in recorder.ends()] == [(HELPER, Exit(signal=15))]


def test_a_helper_is_adopted_and_not_started_again(testbed: EngineTestBed, tmp_path: Path) -> None:
    first = SessionRecorder(testbed, tmp_path / "run", helped(testbed, Behavior(("making",), until=1)))
    first.loop.wait(require_ability(first.session, Preparing).prepare(first.plan, HELPER))
    first.until_said("making", replica=HELPER)
    second = first.again(testbed)
    second.loop.wait(require_ability(second.session, Preparing).prepare(second.plan, HELPER))
    second.until(second.starts)
    testbed.open(1)
    second.until(second.ends)
    assert second.exits() == {HELPER: Exit(code=0)}
    assert second.log(HELPER).count("making") == 1


def test_no_replica_starts_before_the_helper_is_done(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = SupervisedRun(testbed, tmp_path / "home", helped(testbed, Behavior(("making",), until=1)))
    supervised.begin()
    supervised.until(lambda: "making" in supervised.log(HELPER))
    supervised.replace()
    supervised.begin()
    assert supervised.state.phase is Phase.BUILDING
    testbed.open(1)
    assert supervised.until_over().phase is Phase.FINISHED
    told = [each.replica for each in supervised.events if isinstance(each, ReplicaStarted | ReplicaExited)]
    assert told.index(FIRST) > max(number for number, name in enumerate(told) if name == HELPER)


def test_a_helper_that_fails_is_the_cause_and_no_replica_starts(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = SupervisedRun(testbed, tmp_path / "home", helped(testbed, Behavior(code=3)))
    supervised.begin()
    state = supervised.until_over()
    assert state.phase is Phase.FAILED
    assert state.ending
    assert state.ending.cause
    assert (state.ending.cause.replica, state.ending.cause.exit) == (HELPER, Exit(code=3))
    assert {each.replica for each in supervised.events if isinstance(each, ReplicaStarted)} == {HELPER}


def test_a_run_that_is_killed_while_its_helper_works_ends(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = SupervisedRun(
        testbed, tmp_path / "home", helped(testbed, RUNS_UNTIL_STOPPED._replace(says=("making",)))
    )
    supervised.begin()
    supervised.until(lambda: "making" in supervised.log(HELPER))
    supervised.supervisor.take(StopRequested(at_seconds=supervised.loop.time()))
    state = supervised.until_over()
    assert state.phase is Phase.KILLED
    assert state.helpers[HELPER].exit == Exit(signal=15)
