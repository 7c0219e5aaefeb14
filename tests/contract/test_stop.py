"""The contract of stops: TERM, the grace, KILL, and nothing is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.plan.types import ReplicaId
from drumline.run.event import Exit
from scaffold.supervised import watch, worker
from scaffold.testbeds import RUNS_UNTIL_STOPPED, Behavior, EngineTestBed

DEAF = Behavior(("ready",), until=RUNS_UNTIL_STOPPED.until, obeys=False)
STRANGER = ReplicaId("worker", 7)


def test_a_replica_that_is_stopped_with_a_grace_ends_by_term(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, RUNS_UNTIL_STOPPED, RUNS_UNTIL_STOPPED)
    recorder.start()
    recorder.until_started()
    recorder.stop(worker(1))
    recorder.until(recorder.ends)
    recorder.run_other_replica()
    assert recorder.exits() == {worker(1): Exit(signal=15)}
    recorder.stop()
    recorder.until_ended()
    assert recorder.exits() == {worker(0): Exit(signal=15), worker(1): Exit(signal=15)}


def test_a_replica_that_cleans_up_after_term_keeps_its_exit_code(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior(("ready",), until=RUNS_UNTIL_STOPPED.until, code_on_term=42))
    recorder.start()
    recorder.until_said("ready")
    recorder.stop()
    recorder.until_ended()
    assert recorder.exits() == {worker(0): Exit(code=42)}


def test_a_replica_that_ignores_term_is_killed_when_the_grace_is_over_and_not_before(
    testbed: EngineTestBed, tmp_path: Path
) -> None:
    recorder = watch(testbed, tmp_path, DEAF)
    recorder.start()
    recorder.until_said("ready")
    asked_at = recorder.loop.time()
    recorder.stop(grace_seconds=0.3)
    recorder.until_ended()
    (end,) = recorder.ends()
    assert end.exit == Exit(signal=9)
    assert end.at_seconds >= asked_at + 0.3


def test_without_grace_no_replica_is_terminated_first(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior(("ready",), until=RUNS_UNTIL_STOPPED.until, code_on_term=42), DEAF)
    recorder.start()
    for index in (0, 1):
        recorder.until_said("ready", replica=worker(index))
    recorder.stop(grace_seconds=0)
    recorder.until_ended()
    assert set(recorder.exits().values()) == {Exit(signal=9)}


def test_a_grace_can_be_shortened_and_not_extended(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, DEAF)
    recorder.start()
    recorder.until_said("ready")
    recorder.stop()
    recorder.stop()
    recorder.run_other_replica()
    assert not recorder.ends()
    recorder.stop(grace_seconds=0)
    recorder.stop()
    recorder.until_ended()
    recorder.stop()
    recorder.stop(grace_seconds=0)
    recorder.run_other_replica()
    assert [end.exit for end in recorder.ends()] == [Exit(signal=9)]


@pytest.mark.parametrize("grace_seconds", [0, 60])
def test_a_replica_that_never_started_or_is_not_known_ends_unseen_once(
    testbed: EngineTestBed, tmp_path: Path, grace_seconds: float
) -> None:
    recorder = watch(testbed, tmp_path, Behavior(), Behavior())
    for _ in range(2):
        recorder.stop(worker(0), worker(1), STRANGER, grace_seconds=grace_seconds)
    recorder.until(lambda: len(recorder.ends()) == 3)
    recorder.run_other_replica()
    assert sorted(end.replica for end in recorder.ends()) == [worker(0), worker(1), STRANGER]
    assert {end.exit for end in recorder.ends()} == {Exit(message="it was never started")}
    assert not recorder.starts()


@pytest.mark.parametrize("grace_seconds", [0, 60])
def test_a_stop_before_the_start_was_reported_ends_once(
    testbed: EngineTestBed, tmp_path: Path, grace_seconds: float
) -> None:
    recorder = watch(testbed, tmp_path, *[RUNS_UNTIL_STOPPED] * 5)
    recorder.start()
    recorder.stop(grace_seconds=grace_seconds)
    recorder.until_ended()
    assert sorted(recorder.exits()) == [worker(index) for index in range(5)]
    assert len(recorder.ends()) == 5
    assert set(recorder.exits().values()) == {Exit(signal=15 if grace_seconds else 9)}


def test_a_stop_keeps_the_exit_of_an_ended_replica(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior(code=3), RUNS_UNTIL_STOPPED)
    recorder.start()
    testbed.wait_ended(recorder.run_dir, worker(0))
    recorder.stop()
    recorder.until_ended()
    assert recorder.exits() == {worker(0): Exit(code=3), worker(1): Exit(signal=15)}
    assert len(recorder.ends()) == 2


@pytest.mark.parametrize("grace_seconds", [None, 0, 60])
def test_when_an_end_is_reported_nothing_of_the_replica_is_left(
    testbed: EngineTestBed, tmp_path: Path, grace_seconds: float | None
) -> None:
    until = 1 if grace_seconds is None else RUNS_UNTIL_STOPPED.until
    recorder = watch(testbed, tmp_path, Behavior(("ready",), until=until, leaves_child=True))
    recorder.start()
    recorder.until_said("ready")
    if grace_seconds is None:
        testbed.open(1)
    else:
        recorder.stop(grace_seconds=grace_seconds)
    recorder.until(recorder.ends)
    assert testbed.left() == []
