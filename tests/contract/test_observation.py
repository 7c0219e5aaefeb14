"""The contract of hang detection: work samples, sockets and stacks."""

from __future__ import annotations

from pathlib import Path

from drumline.engine.abilities import Connected, Dumpable, Observable
from drumline.run.incarnation import Incarnation
from drumline.run.traces import STACKS, trace_dir
from scaffold.supervised import SessionRecorder, require_ability, watch, worker
from scaffold.testbeds import RUNS_UNTIL_STOPPED, Behavior, EngineTestBed


def take_stacks(recorder: SessionRecorder, *, gently: bool) -> None:
    names = [Incarnation(replica.id, 0) for replica in recorder.plan.replicas]
    recorder.loop.wait(require_ability(recorder.session, Dumpable).stacks(names, gently=gently))


def test_only_running_replicas_have_a_work_sample(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior(until=1), RUNS_UNTIL_STOPPED)
    assert list(recorder.loop.wait(require_ability(recorder.session, Observable).work_samples())) == []
    recorder.start()
    recorder.until_started()
    first = {
        sample.replica: sample
        for sample in recorder.loop.wait(require_ability(recorder.session, Observable).work_samples())
    }
    assert sorted(first) == [worker(0), worker(1)]
    assert not any(sample.is_stopped or sample.attempt or sample.incarnation for sample in first.values())
    testbed.open(1)
    recorder.until(recorder.ends)
    (last,) = recorder.loop.wait(require_ability(recorder.session, Observable).work_samples())
    assert last.replica == worker(1)
    assert last.cpu_seconds >= first[worker(1)].cpu_seconds >= 0
    recorder.stop()
    recorder.until_ended()
    assert list(recorder.loop.wait(require_ability(recorder.session, Observable).work_samples())) == []


def test_the_sockets_of_every_running_replica_can_be_listed(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, RUNS_UNTIL_STOPPED, RUNS_UNTIL_STOPPED)
    require_ability(recorder.session, Connected)
    recorder.start()
    recorder.until_started()
    assert sorted(
        each.replica for each in recorder.loop.wait(require_ability(recorder.session, Connected).sockets())
    ) == [
        worker(0),
        worker(1),
    ]
    recorder.stop()
    recorder.until_ended()
    assert list(recorder.loop.wait(require_ability(recorder.session, Connected).sockets())) == []


def test_a_gentle_stack_dump_ends_no_replica(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior(until=1, code=3), RUNS_UNTIL_STOPPED)
    require_ability(recorder.session, Dumpable)
    recorder.start()
    recorder.until_started()
    take_stacks(recorder, gently=True)
    recorder.run_other_replica()
    assert recorder.ends() == []
    testbed.open(1)
    recorder.until(recorder.ends)
    assert recorder.exits()[worker(0)].code == 3
    recorder.stop()
    recorder.until_ended()
    assert sorted(recorder.exits()) == [worker(0), worker(1)]


def test_stacks_are_taken_before_an_end_and_each_end_is_reported_once(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, RUNS_UNTIL_STOPPED, RUNS_UNTIL_STOPPED)
    require_ability(recorder.session, Dumpable)
    recorder.start()
    recorder.until_started()
    take_stacks(recorder, gently=False)
    recorder.stop()
    recorder.until_ended()
    assert sorted(end.replica for end in recorder.ends()) == [worker(0), worker(1)]
    take_stacks(recorder, gently=False)  # no replica runs any more, and that is no error
    saved = [recorder.run_dir / trace_dir(replica.id, 0) / STACKS for replica in recorder.plan.replicas]
    # py-spy prints `Thread`; Python itself prints `Current thread` for a process with one thread.
    assert all("thread" in path.read_text().lower() for path in saved if path.exists())
