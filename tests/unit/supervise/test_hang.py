"""The hang watch of a run on the fake engine, with simulated time."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.engine.fake import FakeSession
from drumline.engine.fake.behavior import FakeBehavior, LogLine, command_of
from drumline.plan.bind import bind
from drumline.plan.types import ReplicaId
from drumline.run.action import TakeStacks
from drumline.run.event import (
    AttemptPlaced,
    EngineWarned,
    Event,
    FirstStepTaken,
    GangHung,
    RendezvousFailed,
    RunAccepted,
    StacksTaken,
)
from drumline.run.incarnation import Incarnation
from drumline.run.traces import trace_dir
from drumline.runtime import TRACE_DIR
from drumline.runtime.progress import write_report
from drumline.supervise.hang import HangWatch, take_stacks
from drumline.supervise.marks import Marker
from scaffold.decisions import fold, step
from scaffold.fake_sessions import open_fake, read_events
from scaffold.gangs import gang
from scaffold.loops import SimulatedTimeLoop

FIRST, SECOND = ReplicaId("worker", 0), ReplicaId("worker", 1)
BOTH_STACKS = TakeStacks(0, (Incarnation(FIRST, 0), Incarnation(SECOND, 0)))
MAIN = 'Thread 1 (idle): "MainThread"\n'
WAITS = f"{MAIN}    all_reduce (/x/torch/distributed/distributed_c10d.py:4)\n    main (train.py:9)\n"
SLEEPS = f"{MAIN}    time_sleep (x.so)\n    load (train.py:31)\n    main (train.py:9)\n"
WORKS, IDLE = FakeBehavior(exit=None), FakeBehavior(exit=None, is_idle=True)


class WatchedRun:
    """A run on the fake engine, watched from its start, and the events that are reported."""

    def __init__(self, folder: Path, text: str, *acts: FakeBehavior, progress: float | None = 1800.0) -> None:
        self.loop = SimulatedTimeLoop()
        plan = gang(text)
        replicas = [replica.replace(argv=command_of(act)) for replica, act in zip(plan.replicas, acts, strict=True)]
        timeouts = plan.timeouts.replace(progress_seconds=progress)
        self.plan = plan.replace(replicas=tuple(replicas), timeouts=timeouts)
        folder.mkdir(exist_ok=True)
        self.session = open_fake(folder, self.loop, FakeSession)
        self.reported = read_events(self.session, self.loop)
        placement = self.loop.wait(self.session.place(self.plan)).places
        self.loop.wait(self.session.start(bind(self.plan, placement)))
        self.state = fold(self.plan, [RunAccepted(), AttemptPlaced(0, ()), *self.reported])
        addresses = {name: place.address for name, place in placement.items()}
        self._watch = HangWatch(
            folder,
            self.plan,
            self.session,
            self.reported.append,
            lambda _: addresses,
            self.loop.time,
            self.loop.create_task,
        )
        self._marker = Marker()
        self._tick()

    def _tick(self) -> None:
        self._watch.check(self.state, self._marker.mark(self.session.traces()))
        self.loop.call_later(10.0, self._tick)

    def passes(self, seconds: float) -> list[Event]:
        """Let these seconds pass; return the events that were reported meanwhile."""
        self.reported.clear()
        self.loop.pass_time(seconds)
        return list(self.reported)


def lines(every: float, number: int) -> tuple[LogLine, ...]:
    return tuple(LogLine("still here", every * each) for each in range(number))


def test_an_idle_gang_hangs_after_the_progress_timeout(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path, "worker*2 framework=plain", IDLE, IDLE)
    assert watched.passes(1790) == []
    assert watched.passes(60)[0] == GangHung(0, "no progress for 30m")


def test_a_gang_with_one_replica_that_computes_or_prints_does_not_hang(tmp_path: Path) -> None:
    text = "worker*2 framework=plain"
    assert WatchedRun(tmp_path / "a", text, WORKS, IDLE).passes(43200) == []
    assert WatchedRun(tmp_path / "b", text, IDLE, IDLE.replace(lines=lines(1700, 20))).passes(1700 * 19) == []


def test_a_report_counts_as_activity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = WatchedRun(tmp_path, "worker framework=plain", IDLE)
    assert watched.passes(1500) == []
    monkeypatch.setenv(TRACE_DIR, str(tmp_path / trace_dir(FIRST, 0)))
    write_report(3, {})
    assert watched.passes(1500) == []
    assert watched.passes(400)


def test_the_output_of_an_evaluator_is_not_progress_of_the_training(tmp_path: Path) -> None:
    busy = WORKS.replace(lines=lines(60, 60))
    watched = WatchedRun(tmp_path, "worker evaluator framework=plain", IDLE, busy)
    assert watched.passes(1900)[0] == GangHung(0, "no progress for 30m")


def test_the_progress_timeout_restarts_with_an_attempt_and_does_not_run_while_an_attempt_ends(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path, "worker framework=plain crash=1", IDLE)
    assert watched.passes(1790) == []
    before = watched.state
    watched.state, _ = step(watched.plan, before, GangHung(0, "x"))
    assert watched.passes(1790) == []
    watched.state = before
    assert watched.passes(1790) == []
    assert watched.passes(60)


def test_a_run_without_a_limit_never_counts_as_hung(tmp_path: Path) -> None:
    assert WatchedRun(tmp_path, "worker framework=plain", IDLE, progress=None).passes(43200) == []


@pytest.mark.parametrize(("second", "hangs"), [(WAITS, True), (SLEEPS, False), ("", False)])
def test_a_replica_that_waits_busily_is_found_by_several_stack_dumps(tmp_path: Path, second: str, hangs: bool) -> None:
    acts = WORKS.replace(stacks=WAITS), WORKS.replace(stacks=second)
    watched = WatchedRun(tmp_path, "worker*2 framework=plain", *acts)
    assert watched.passes(1800 + 500) == []
    reported = watched.passes(3600)
    assert [type(event) for event in reported[:1]] == ([GangHung] if hangs else [])
    if hangs:
        assert "though processors are busy" in str(reported[0])


def test_a_replica_that_neither_listens_nor_works_keeps_the_gang_from_forming(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path, "worker*2", IDLE, IDLE.replace(listens=False))
    assert watched.passes(590) == []
    reported = watched.passes(60)
    assert reported[0] == RendezvousFailed(0, SECOND, "after 10m worker.1 does not listen on worker-1.fake:2222")


def test_a_busy_replica_that_does_not_listen_causes_only_a_warning(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path, "worker*2", IDLE, WORKS.replace(listens=False))
    assert watched.passes(590) == []
    (warned,) = watched.passes(3600)
    assert isinstance(warned, EngineWarned)
    assert "worker.1 does not listen on worker-1.fake:2222" in warned.message


@pytest.mark.parametrize("text", ["worker*2 framework=plain", "worker*2 framework=torch"])
def test_a_gang_without_a_rendezvous_or_with_a_formed_one_causes_no_event(tmp_path: Path, text: str) -> None:
    listens = "plain" not in text
    acts = IDLE.replace(listens=listens), WORKS.replace(listens=listens)
    assert WatchedRun(tmp_path, text, *acts).passes(3600) == []


def test_the_rendezvous_of_a_gang_that_has_taken_a_step_counts_as_formed(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path, "worker*2", WORKS, WORKS.replace(listens=False))
    watched.state, _ = step(watched.plan, watched.state, FirstStepTaken(0, FIRST, 1, 0.0))
    assert watched.passes(3600) == []


def test_saved_stacks_name_the_blocking_replica(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path, "worker*2", IDLE.replace(stacks=WAITS), IDLE.replace(stacks=SLEEPS))
    watched.reported.clear()
    watched.loop.wait(
        take_stacks(
            tmp_path,
            watched.session,
            watched.reported.append,
            BOTH_STACKS,
        )
    )
    watched.loop.pass_time(0)
    message = "worker.1 is in sleep (train.py:31), worker.0 waits in all_reduce"
    assert watched.reported == [StacksTaken(0, SECOND, message)]


def test_a_replica_that_exited_before_the_stack_dump_is_not_the_cause(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path, "worker*2", IDLE.replace(stacks=WAITS), IDLE)
    watched.reported.clear()
    for has_ended in ((lambda _: False), (lambda _: True)):
        watched.loop.wait(
            take_stacks(
                tmp_path,
                watched.session,
                watched.reported.append,
                BOTH_STACKS,
                has_ended,
            )
        )
        watched.loop.pass_time(0)
    first, second = watched.reported
    assert first == StacksTaken(0, SECOND, "worker.1 shows no stack, worker.0 waits in all_reduce")
    assert second == StacksTaken(0, None, "worker.0 waits in all_reduce (distributed_c10d.py:4)")
