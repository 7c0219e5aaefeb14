"""The contract of usage: of running replicas, and once more of ended ones."""

from __future__ import annotations

from pathlib import Path

from drumline.engine.abilities import Measurable
from drumline.run.usage import Usage
from scaffold.supervised import SessionRecorder, require_ability, watch, worker
from scaffold.testbeds import Behavior, EngineTestBed


def usage(recorder: SessionRecorder, *, watched: bool) -> list[Usage]:
    """Return what the engine measures."""
    return [*recorder.loop.wait(require_ability(recorder.session, Measurable).usage(watched=watched))]


def test_every_running_replica_is_measured_and_an_ended_replica_once_more(
    testbed: EngineTestBed, tmp_path: Path
) -> None:
    recorder = watch(testbed, tmp_path, Behavior(until=1), Behavior(until=2))
    require_ability(recorder.session, Measurable)
    recorder.start()
    recorder.until_started()
    running = [each for each in usage(recorder, watched=True) if each.memory_bytes is not None]
    assert sorted(each.replica for each in running) == [worker(0), worker(1)]
    testbed.open(1)
    recorder.until(recorder.ends)
    told = usage(recorder, watched=False)
    assert sorted(each.replica for each in told) == [worker(0), worker(1)]
    assert [each.replica for each in usage(recorder, watched=True)] == [worker(1)]
    testbed.open(2)
    recorder.until_ended()
    assert worker(1) in [each.replica for each in usage(recorder, watched=False)]
    assert usage(recorder, watched=False) == []


def test_measured_cpu_time_grows_and_is_at_most_the_time_of_the_incarnation(
    testbed: EngineTestBed, tmp_path: Path
) -> None:
    recorder = watch(testbed, tmp_path, Behavior(until=1))
    require_ability(recorder.session, Measurable)
    recorder.start()
    recorder.until_started()
    (first,) = usage(recorder, watched=False)
    assert (first.attempt, first.incarnation) == (0, 0)
    testbed.open(1)
    recorder.until(recorder.ends)
    (last,) = usage(recorder, watched=False)
    (end,) = recorder.ends()
    assert last.at_seconds == end.at_seconds
    assert first.started_seconds == last.started_seconds <= first.at_seconds <= last.at_seconds
    assert 0 <= first.cpu_seconds <= last.cpu_seconds


def test_an_adopted_incarnation_is_measured_from_its_start(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior(until=1))
    require_ability(recorder.session, Measurable)
    recorder.start()
    recorder.until_started()
    (before,) = usage(recorder, watched=False)
    another = recorder.again(testbed)
    another.start()
    another.until_started()
    (after,) = usage(another, watched=False)
    assert (after.replica, after.started_seconds) == (before.replica, before.started_seconds)
    testbed.open(1)
    another.until_ended()
