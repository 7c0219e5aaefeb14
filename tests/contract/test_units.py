"""The contract of replicas that restart separately, and whole runs with such replicas."""

from __future__ import annotations

import time
from itertools import chain
from pathlib import Path

import pytest

from contract.test_runs import CHIEF, PS, open_supervised, return_to, until_running
from drumline.plan.types import ReplicaId
from drumline.run.event import Exit, FirstStepTaken, ReplicaExited, ReplicaStarted
from drumline.run.incarnation import Incarnation
from drumline.run.state import Phase, ReplicaState
from drumline.runtime.keeper import boot_id
from drumline.store.clock import Moment
from drumline.view.feed import Feed, Lines
from drumline.view.run import run_details
from scaffold.supervised import SessionRecorder, SupervisedRun, cast, watch, worker
from scaffold.testbeds import RUNS_UNTIL_STOPPED, Behavior, EngineTestBed

AGAIN = {worker(1): 1}
BOTH = [Incarnation(worker(0), 0), Incarnation(worker(1), 0, 1)]
SECOND = Behavior(("incarnation $DRUMLINE_INCARNATION of attempt $DRUMLINE_ATTEMPT",), until=RUNS_UNTIL_STOPPED.until)


def begin(testbed: EngineTestBed, folder: Path) -> SessionRecorder:
    """Start two workers, one of which fails and is restarted."""
    plan = cast(
        testbed, "worker*2", {"worker.0": RUNS_UNTIL_STOPPED, "worker.1": (Behavior(("first",), code=3), SECOND)}
    )
    recorder = SessionRecorder(testbed, folder / "run", plan)
    first = recorder.launches()
    recorder.loop.wait(recorder.session.start(first))
    recorder.until(lambda: recorder.ends() and worker(0) in recorder.starts())  # possibly on different hosts
    for _ in range(2):  # a start may be requested twice
        recorder.start_again(first, AGAIN)
    recorder.until(lambda: recorder.log(worker(1), incarnation=1).endswith("\n"))
    return recorder


def test_a_restarted_replica_is_a_new_incarnation_and_the_others_continue(
    testbed: EngineTestBed, tmp_path: Path
) -> None:
    recorder = begin(testbed, tmp_path)
    recorder.run_other_replica()
    started = [(each.replica, each.incarnation) for each in recorder.told if isinstance(each, ReplicaStarted)]
    assert sorted(started[:3]) == [(worker(0), 0), (worker(1), 0), (worker(1), 1)]
    assert (recorder.log(worker(1)), recorder.log(worker(1), incarnation=1)) == (
        "first\n",
        "incarnation 1 of attempt 0\n",
    )
    recorder.loop.wait(recorder.session.stop(BOTH, grace_seconds=60))
    recorder.until(lambda: len(recorder.ends()) == 3)
    ends = [(end.replica, end.incarnation, end.exit) for end in recorder.ends()]
    assert sorted(ends) == [
        (worker(0), 0, Exit(signal=15)),
        (worker(1), 0, Exit(code=3)),
        (worker(1), 1, Exit(signal=15)),
    ]


@pytest.mark.parametrize("verb", ["start", "stop"])
def test_a_restarted_replica_is_adopted_by_the_next_supervisor(
    testbed: EngineTestBed, tmp_path: Path, verb: str
) -> None:
    first = begin(testbed, tmp_path)
    second = first.again(testbed)
    if verb == "start":
        second.start_again(second.launches(), AGAIN)
        second.until(lambda: len(second.starts()) == 2)
    second.loop.wait(second.session.stop(BOTH, grace_seconds=60))
    second.until(lambda: len(second.ends()) == 2)
    assert {(end.replica, end.incarnation, end.exit) for end in second.ends()} == {
        (worker(0), 0, Exit(signal=15)),
        (worker(1), 1, Exit(signal=15)),
    }


def test_a_replica_with_a_restart_that_never_started_ends_unseen(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, RUNS_UNTIL_STOPPED, Behavior(code=3))
    recorder.start()
    recorder.until(recorder.ends)
    recorder.loop.wait(recorder.session.stop(BOTH, grace_seconds=60))
    recorder.until(lambda: len(recorder.ends()) == 3)
    assert (worker(1), 1, Exit(message="it was never started")) in [
        (end.replica, end.incarnation, end.exit) for end in recorder.ends()
    ]


# --- whole runs, of the framework with replicas that restart separately -----------------------------------------------


def step(supervised: SupervisedRun) -> None:
    """Record the first step of the gang."""
    until_running(supervised)
    supervised.supervisor.take(FirstStepTaken(supervised.state.attempt, CHIEF, 1, supervised.loop.time()))
    supervised.until(lambda: supervised.state.stepped)


def _is_up_again(state: ReplicaState) -> bool:
    return (state.phase, state.incarnation) == (Phase.RUNNING, 1)


def until_returned(supervised: SupervisedRun, *replicas: ReplicaId) -> None:
    supervised.until(lambda: all(_is_up_again(supervised.state.replicas[each]) for each in replicas))


def test_only_the_failed_worker_restarts_and_both_incarnations_are_reported(
    testbed: EngineTestBed, tmp_path: Path
) -> None:
    behaviors: dict[str, Behavior | tuple[Behavior, ...]] = {
        "chief.0": Behavior(until=3),
        "worker.0": RUNS_UNTIL_STOPPED,
        "worker.1": (Behavior(("one",), until=1, signal=9), Behavior(("two",), until=RUNS_UNTIL_STOPPED.until)),
        "ps.0": RUNS_UNTIL_STOPPED,
    }
    supervised = open_supervised(testbed, tmp_path, cast(testbed, "chief worker*2 ps crash=1", behaviors))
    supervised.until(lambda: supervised.log(worker(1)) == "one\n")
    step(supervised)
    testbed.open(1)
    until_returned(supervised, worker(1))
    supervised.until(lambda: supervised.log(worker(1), incarnation=1) == "two\n")
    return_to(supervised)
    supervised.until(lambda: supervised.state.phase is Phase.RUNNING)
    details = run_details(supervised.folder, Moment(time.time(), supervised.loop.time(), boot_id()))
    row = next(row for row in details.replicas if row.id == worker(1))
    assert (row.phase, row.incarnation, row.exit) == (Phase.RUNNING, 1, None)
    testbed.open(3)
    state = supervised.until_over()
    assert (state.phase, state.attempt) == (Phase.FINISHED, 0)
    feed = Feed(supervised.folder)
    items = list(chain.from_iterable(iter(lambda: feed.poll(time.time()), [])))
    said = [item.data.decode() for item in items if isinstance(item, Lines)]
    assert said == ["one\n", "worker.1 rejoins (restart 1 of 1): killed by signal 9 (KILL)\n", "two\n"]
    changes = [item for item in items if not isinstance(item, Lines) and item.id == "4.worker.1"]
    # A cluster may also report what a pod waits for.
    own = [each.phase for each in changes if not (each.phase is Phase.STARTING and each.message)]
    assert own == [Phase.STARTING, Phase.RUNNING, Phase.RESTARTING, Phase.STARTING, Phase.RUNNING, Phase.FINISHED]


def test_all_replicas_restart_when_a_ps_fails_also_with_a_new_supervisor(
    testbed: EngineTestBed, tmp_path: Path
) -> None:
    behaviors: dict[str, Behavior | tuple[Behavior, ...]] = {
        "chief.0": (RUNS_UNTIL_STOPPED, Behavior(until=3)),
        "worker.0": RUNS_UNTIL_STOPPED,
        "ps.0": (Behavior(until=1, code=1), RUNS_UNTIL_STOPPED),
        "ps.1": RUNS_UNTIL_STOPPED,
    }
    supervised = open_supervised(testbed, tmp_path, cast(testbed, "chief worker ps*2 crash=1", behaviors))
    step(supervised)
    testbed.open(1)
    testbed.wait_ended(supervised.folder.path, PS)
    supervised.until(lambda: supervised.state.revivals)
    return_to(supervised)  # while they restart
    until_returned(supervised, CHIEF, worker(0), PS, ReplicaId("ps", 1))
    testbed.open(3)
    state = supervised.until_over()
    assert (state.phase, state.attempt) == (Phase.FINISHED, 0)
    incarnations = {
        (event.replica, event.incarnation) for event in supervised.events if isinstance(event, ReplicaExited)
    }
    twice = (CHIEF, worker(0), PS, ReplicaId("ps", 1))
    assert incarnations == {(each, number) for each in twice for number in (0, 1)}


def test_a_chief_that_failed_without_a_supervisor_restarts(testbed: EngineTestBed, tmp_path: Path) -> None:
    behaviors: dict[str, Behavior | tuple[Behavior, ...]] = {
        "chief.0": (Behavior(until=1, code=1), Behavior()),
        "worker.0": RUNS_UNTIL_STOPPED,
        "ps.0": RUNS_UNTIL_STOPPED,
    }
    supervised = open_supervised(testbed, tmp_path, cast(testbed, "chief worker ps crash=1", behaviors))
    step(supervised)
    testbed.open(1)
    testbed.wait_ended(supervised.folder.path, CHIEF)
    return_to(supervised)
    state = supervised.until_over()
    assert (state.phase, state.attempt, state.restarts) == (Phase.FINISHED, 0, {"crash": 1})
