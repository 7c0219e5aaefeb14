"""Whole runs on every engine, by a real supervisor with a real journal."""

from __future__ import annotations

import time
from itertools import chain
from pathlib import Path

import pytest

from drumline.plan.types import Plan, ReplicaId
from drumline.run.event import EngineFailed, Exit, ReplicaExited, ReplicaStarted, StopRequested
from drumline.run.state import Phase
from drumline.runtime.keeper import boot_id
from drumline.store.clock import Moment
from drumline.view.feed import Change, Feed, Lines
from drumline.view.run import run_details
from scaffold.supervised import SupervisedRun, cast, worker, workers
from scaffold.testbeds import NEVER, RUNS_UNTIL_STOPPED, Behavior, EngineTestBed

CHIEF, PS = ReplicaId("chief", 0), ReplicaId("ps", 0)
DEAF = Behavior(("ready",), until=NEVER, obeys=False)


def open_supervised(testbed: EngineTestBed, folder: Path, plan: Plan) -> SupervisedRun:
    supervised = SupervisedRun(testbed, folder / "home", plan)
    supervised.begin()
    return supervised


def return_to(supervised: SupervisedRun, *, asked: bool = False) -> None:
    """Replace the supervisor, as `drumline supervise` and `drumline kill` do."""
    supervised.replace()
    if asked:
        supervised.supervisor.take(StopRequested(at_seconds=supervised.loop.time()))
    supervised.begin()


def until_running(supervised: SupervisedRun) -> None:
    supervised.until(lambda: supervised.state.phase is Phase.RUNNING)


def until_exited(supervised: SupervisedRun, replica: ReplicaId) -> None:
    supervised.until(
        lambda: replica in {event.replica for event in supervised.events if isinstance(event, ReplicaExited)}
    )


def test_a_run_finishes(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = open_supervised(testbed, tmp_path, workers(testbed, Behavior(("first",)), Behavior(("second",))))
    state = supervised.until_over()
    assert state.phase is Phase.FINISHED
    assert [type(event).__name__ for event in supervised.events][:2] == ["RunAccepted", "AttemptPlaced"]
    assert {each.exit for each in state.replicas.values()} == {Exit(code=0)}
    assert (supervised.log(worker(0)), supervised.log(worker(1))) == ("first\n", "second\n")


def test_a_run_is_shown_with_its_logs_and_exits(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = open_supervised(
        testbed, tmp_path, workers(testbed, Behavior(("one", "two")), Behavior(until=1, code=3))
    )
    until_exited(supervised, worker(0))
    testbed.open(1)
    supervised.until_over()
    feed = Feed(supervised.folder)
    items = list(chain.from_iterable(iter(lambda: feed.poll(time.time()), [])))
    said = b"".join(item.data for item in items if isinstance(item, Lines))
    assert said == b"one\ntwo\n"
    assert [item.phase for item in items if isinstance(item, Change) and item.id == "4"][-1] is Phase.FAILED
    details = run_details(supervised.folder, Moment(time.time(), supervised.loop.time(), boot_id()))
    assert [(row.id, row.exit) for row in details.replicas] == [(worker(0), Exit(code=0)), (worker(1), Exit(code=3))]
    assert all(row.duration_seconds is not None for row in details.replicas)


def test_a_gang_that_fails_starts_again_as_a_whole(testbed: EngineTestBed, tmp_path: Path) -> None:
    says = ("attempt $DRUMLINE_ATTEMPT",)
    plan = cast(
        testbed,
        "worker*2 crash=1 early=1",
        {
            "worker.0": (RUNS_UNTIL_STOPPED._replace(says=says), Behavior(says)),
            "worker.1": (Behavior(says, code=3), Behavior(says)),
        },
    )
    supervised = open_supervised(testbed, tmp_path, plan)
    state = supervised.until_over()
    assert (state.phase, state.attempt) == (Phase.FINISHED, 1)
    assert [(cause.replica, cause.exit) for cause in state.causes] == [(worker(1), Exit(code=3))]
    assert [supervised.log(worker(1), attempt) for attempt in (0, 1)] == ["attempt 0\n", "attempt 1\n"]


def test_a_gang_that_fails_too_often_has_failed(testbed: EngineTestBed, tmp_path: Path) -> None:
    plan = cast(
        testbed,
        "worker*2 crash=1 early=1 backoff_initial_seconds=0",
        {"worker.0": RUNS_UNTIL_STOPPED, "worker.1": Behavior(code=3)},
    )
    supervised = open_supervised(testbed, tmp_path, plan)
    state = supervised.until_over()
    assert (state.phase, state.attempt) == (Phase.FAILED, 1)
    assert state.ending
    assert state.ending.cause
    assert (state.ending.cause.replica, state.ending.cause.exit) == (worker(1), Exit(code=3))
    assert state.replicas[worker(0)].phase is Phase.KILLED


def test_a_run_that_is_killed_ends(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = open_supervised(testbed, tmp_path, workers(testbed, RUNS_UNTIL_STOPPED, RUNS_UNTIL_STOPPED))
    until_running(supervised)
    supervised.supervisor.take(StopRequested(at_seconds=supervised.loop.time()))
    state = supervised.until_over()
    assert state.phase is Phase.KILLED
    assert {(each.phase, each.exit) for each in state.replicas.values()} == {(Phase.KILLED, Exit(signal=15))}


def test_a_run_that_is_killed_by_force_ends_though_replicas_ignore_term(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = open_supervised(testbed, tmp_path, workers(testbed, DEAF, DEAF))
    supervised.until(lambda: supervised.log(worker(0)) == supervised.log(worker(1)) == "ready\n")
    supervised.supervisor.take(StopRequested(at_seconds=supervised.loop.time()))
    supervised.until(lambda: supervised.state.ending)
    supervised.supervisor.take(StopRequested(force=True, at_seconds=supervised.loop.time()))
    state = supervised.until_over()
    assert {(each.phase, each.exit) for each in state.replicas.values()} == {(Phase.KILLED, Exit(signal=9))}


def test_a_run_that_is_killed_before_its_start_starts_no_replica(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = SupervisedRun(testbed, tmp_path / "home", workers(testbed, RUNS_UNTIL_STOPPED))
    supervised.supervisor.take(StopRequested(at_seconds=supervised.loop.time()))
    supervised.begin()
    assert supervised.until_over().phase is Phase.KILLED
    assert not [event for event in supervised.events if isinstance(event, ReplicaStarted)]


def test_a_gang_that_its_engine_refuses_has_failed(testbed: EngineTestBed, tmp_path: Path) -> None:
    plan = workers(testbed, RUNS_UNTIL_STOPPED, RUNS_UNTIL_STOPPED)
    first, second = plan.replicas
    plan = plan.replace(replicas=(first, second.replace(argv=testbed.refused)))
    supervised = open_supervised(testbed, tmp_path, plan)
    state = supervised.until_over()
    assert state.phase is Phase.FAILED
    (failed,) = [event for event in supervised.events if isinstance(event, EngineFailed)]
    assert "worker.1" in failed.message


def test_ps_are_stopped_after_the_workers(testbed: EngineTestBed, tmp_path: Path) -> None:
    plan = cast(
        testbed,
        "chief worker ps grace=0.2",
        {"chief.0": Behavior(until=1), "worker.0": DEAF, "ps.0": RUNS_UNTIL_STOPPED},
    )
    supervised = open_supervised(testbed, tmp_path, plan)
    until_running(supervised)
    supervised.until(lambda: supervised.log() == "ready\n")
    testbed.open(1)
    state = supervised.until_over()
    assert state.phase is Phase.FINISHED
    ends = [event for event in supervised.events if isinstance(event, ReplicaExited)]
    assert [end.replica for end in ends] == [CHIEF, worker(0), PS]
    assert [end.exit for end in ends] == [Exit(code=0), Exit(signal=9), Exit(signal=15)]
    assert ends[0].at_seconds < ends[1].at_seconds < ends[2].at_seconds


# --- another supervisor -----------------------------------------------------------------------------------------------


def test_a_run_continues_with_another_supervisor(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = open_supervised(testbed, tmp_path, workers(testbed, *[Behavior(("here",), until=1)] * 2))
    until_running(supervised)
    for _ in range(2):
        return_to(supervised)
    testbed.open(1)
    state = supervised.until_over()
    assert (state.phase, state.attempt) == (Phase.FINISHED, 0)
    supervised.until(lambda: supervised.log(worker(0)) == supervised.log(worker(1)) == "here\n")


def test_a_supervisor_that_exited_before_any_start_was_reported_is_replaced(
    testbed: EngineTestBed, tmp_path: Path
) -> None:
    supervised = open_supervised(testbed, tmp_path, workers(testbed, *[Behavior(("here",), until=1)] * 2))
    return_to(supervised)  # the first one has recorded no start
    until_running(supervised)
    testbed.open(1)
    assert supervised.until_over().phase is Phase.FINISHED
    assert (supervised.log(worker(0)), supervised.log(worker(1))) == ("here\n", "here\n")


@pytest.mark.parametrize(("code", "phase"), [(0, Phase.FINISHED), (3, Phase.FAILED)])
def test_the_result_of_a_gang_without_a_supervisor_is_the_result_of_the_run(
    testbed: EngineTestBed, tmp_path: Path, code: int, phase: Phase
) -> None:
    supervised = open_supervised(testbed, tmp_path, workers(testbed, Behavior(until=2), Behavior(until=1, code=code)))
    until_running(supervised)
    for gate, index in ((1, 1), (2, 0)):
        testbed.open(gate)
        testbed.wait_ended(supervised.folder.path, worker(index))
    return_to(supervised)
    state = supervised.until_over()
    assert state.phase is phase
    ends = [event.replica for event in supervised.events if isinstance(event, ReplicaExited)]
    assert ends == [worker(1), worker(0)]


def test_the_first_failure_without_a_supervisor_is_the_cause(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = open_supervised(
        testbed, tmp_path, workers(testbed, Behavior(until=2, code=1), Behavior(until=1, code=3), RUNS_UNTIL_STOPPED)
    )
    until_running(supervised)
    for gate, index in ((1, 1), (2, 0)):
        testbed.open(gate)
        testbed.wait_ended(supervised.folder.path, worker(index))
    return_to(supervised)
    state = supervised.until_over()
    assert state.ending
    assert state.ending.cause
    assert (state.ending.cause.replica, state.ending.cause.exit.code) == (worker(1), 3)
    assert [(each.phase, each.reason) for each in state.replicas.values()] == [
        (Phase.FAILED, "Consequence"),
        (Phase.FAILED, "Exited"),
        (Phase.KILLED, "PeerFailed"),
    ]


def test_a_run_that_is_killed_after_all_replicas_finished_has_finished(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = open_supervised(testbed, tmp_path, workers(testbed, Behavior(until=1), Behavior(until=1)))
    until_running(supervised)
    testbed.open(1)
    for index in (0, 1):
        testbed.wait_ended(supervised.folder.path, worker(index))
    return_to(supervised, asked=True)
    assert supervised.until_over().phase is Phase.FINISHED


def test_a_run_that_is_killed_without_its_supervisor_ends(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = open_supervised(testbed, tmp_path, workers(testbed, Behavior(until=1), RUNS_UNTIL_STOPPED))
    until_running(supervised)
    testbed.open(1)
    testbed.wait_ended(supervised.folder.path, worker(0))
    return_to(supervised, asked=True)
    state = supervised.until_over()
    assert state.phase is Phase.KILLED
    assert [each.exit for each in state.replicas.values()] == [Exit(code=0), Exit(signal=15)]


def test_a_supervisor_that_exited_while_it_stopped_the_gang_is_replaced(testbed: EngineTestBed, tmp_path: Path) -> None:
    plan = cast(
        testbed,
        "worker*2 grace=0.3 early=1 crash=1",
        {"worker.0": (DEAF, Behavior()), "worker.1": (Behavior(until=1, code=3), Behavior())},
    )
    supervised = open_supervised(testbed, tmp_path, plan)
    supervised.until(lambda: supervised.log() == "ready\n")
    until_running(supervised)
    testbed.open(1)
    until_exited(supervised, worker(1))
    return_to(supervised)
    state = supervised.until_over()
    assert (state.phase, state.attempt) == (Phase.FINISHED, 1)
    ends = [event for event in supervised.events if isinstance(event, ReplicaExited) and event.attempt == 0]
    assert [(end.replica, end.exit) for end in ends] == [(worker(1), Exit(code=3)), (worker(0), Exit(signal=9))]
