"""The first step of an attempt is found in a log, a report or a file; its time is read from the marks."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from drumline.plan.types import Plan, ReplicaId
from drumline.run.event import AttemptPlaced, FirstStepTaken, ReplicaStarted, RunAccepted
from drumline.run.state import RunState
from drumline.run.traces import trace_dir
from drumline.runtime import TRACE_DIR
from drumline.runtime.progress import write_report
from drumline.supervise.marks import MARK, Marker
from drumline.supervise.progress import ProgressWatch
from scaffold.decisions import fold, step
from scaffold.gangs import gang
from scaffold.loops import SimulatedTimeLoop

CHIEF, WORKER, EVALUATOR = ReplicaId("chief", 0), ReplicaId("worker", 0), ReplicaId("evaluator", 0)
WRITTEN = Path(__file__).parents[1] / "run" / "scalars"


class WatchedRun:
    """A running gang, its logs, and a progress watch with simulated time."""

    def __init__(self, run: Path, *, attempt: int = 0, plan: Plan | None = None) -> None:
        self.plan = plan or gang("chief worker evaluator")
        self.run = run
        self.loop = SimulatedTimeLoop()
        self.marker = Marker()
        self.state = self._running(attempt)
        for replica in self.plan.replicas:
            self.folder(replica.id).mkdir(parents=True)
        self.check_seconds = 0.0
        self.watch = ProgressWatch(run, self.plan, lambda: str(run / "output"), self._now)

    def _now(self) -> float:
        self.loop.pass_time(self.check_seconds)
        return self.loop.time()

    def _running(self, attempt: int) -> RunState:
        started = [ReplicaStarted(replica.id, 0) for replica in self.plan.replicas]
        return fold(self.plan, [RunAccepted(), AttemptPlaced(0, ()), *started]).replace(attempt=attempt)

    def folder(self, replica: ReplicaId) -> Path:
        return self.run / trace_dir(replica, self.state.attempt)

    def say(self, replica: ReplicaId, text: str) -> None:
        with (self.folder(replica) / "log").open("a") as log:
            log.write(text)

    def first_steps(self, *exited: ReplicaId) -> list[FirstStepTaken]:
        """Return the first step found by a tick, one second later; or by a check for exits, at once."""
        if exited:
            return list(self.watch.find_first_step(self.state, exited=frozenset(exited)))
        self.loop.pass_time(1)
        folders = [self.folder(replica.id) for replica in self.plan.replicas]
        found = self.watch.find_first_step(self.state, self.marker.mark(folders))
        for event in found:
            self.state, actions = step(self.plan, self.state, event)
            assert not actions
        return list(found)


def _earlier(marks: bytes, seconds: float) -> bytes:
    return b"".join(MARK.pack(at - seconds, size) for at, size in MARK.iter_unpack(marks))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("step 0 loss 2.3\n", 0),
        ("hello\nstep 61: loss=0.5\nstep 62: loss=0.4\n", 61),
        ("Epoch 1/2\n 1/10 ━━ 3s - loss: 0.7\r 2/10 ━━ 3s - loss: 0.6", 1),
        (" 1/10 ━━ 3s - loss: 0.7", 1),
        ("epoch 3 loss 0.3\n", None),
        ("train:  10%|█  | 3/30 [00:01<00:09,  3.00it/s]", 3),
    ],
)
def test_a_log_line_with_a_step_is_the_first_step(tmp_path: Path, text: str, number: int | None) -> None:
    watched = WatchedRun(tmp_path)
    watched.say(WORKER, text)
    (taken,) = watched.first_steps()
    assert (taken.attempt, taken.replica, taken.step) == (0, WORKER, number)
    assert watched.state.stepped


@pytest.mark.parametrize("text", ["Epoch 1/2\n", "the loss is a mean\n", "resumed at step 60\n", "100%|\n", "\x1b[2J"])
def test_a_log_line_that_only_resembles_a_step_is_not_a_step(tmp_path: Path, text: str) -> None:
    watched = WatchedRun(tmp_path)
    watched.say(CHIEF, text)
    assert watched.first_steps() == []


def test_a_step_in_the_log_of_an_evaluator_is_not_a_step_of_the_training(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path)
    watched.say(EVALUATOR, "step 100 loss 0.3\n")
    assert watched.first_steps() == []


def test_a_line_that_is_written_in_pieces_is_read_when_it_is_complete(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path)
    watched.say(WORKER, "step 5 lo")
    assert watched.first_steps() == []
    watched.say(WORKER, "ss 0.25\n")
    assert [taken.step for taken in watched.first_steps()] == [5]


def test_the_first_step_is_reported_once(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path)
    watched.say(WORKER, "step 1 loss 0.3\n")
    assert watched.first_steps()
    watched.say(CHIEF, "step 2 loss 0.3\n")
    assert watched.first_steps() == []
    assert watched.first_steps(CHIEF) == []


def test_the_first_step_of_the_next_attempt_is_reported_again(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path)
    watched.say(WORKER, "step 1 loss 0.3\n")
    assert watched.first_steps()
    watched.state = watched.state.replace(attempt=1, stepped=False, replicas=dict(watched.state.replicas))
    watched.folder(WORKER).mkdir(parents=True)
    assert watched.first_steps() == []
    watched.say(WORKER, "step 60 loss 0.3\n")
    (taken,) = watched.watch.find_first_step(watched.state, [watched.folder(WORKER)])
    assert (taken.attempt, taken.step) == (1, 60)


def test_a_step_that_is_found_late_has_the_time_of_its_mark(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path)
    watched.say(WORKER, "step 1 loss 0.3\n")
    watched.marker.mark([watched.folder(WORKER)])
    marks = watched.folder(WORKER) / "marks"
    marks.write_bytes(_earlier(marks.read_bytes(), 30.0))
    watched.loop.pass_time(40)
    (taken,) = watched.first_steps(WORKER)
    assert watched.loop.time() - 60.0 < taken.at_seconds < watched.loop.time() - 29.0


def test_the_oldest_of_several_steps_is_the_first_step(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path)
    watched.say(WORKER, "step 7 loss 0.3\n")
    watched.say(CHIEF, "step 3 loss 0.3\n")
    for replica, ago in ((WORKER, 20.0), (CHIEF, 50.0)):
        watched.marker.mark([watched.folder(replica)])
        marks = watched.folder(replica) / "marks"
        marks.write_bytes(_earlier(marks.read_bytes(), ago))
    assert [taken.replica for taken in watched.first_steps(WORKER, CHIEF)] == [CHIEF]


def test_the_first_reported_step_is_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = WatchedRun(tmp_path)
    monkeypatch.setenv(TRACE_DIR, str(watched.folder(WORKER)))
    write_report(12, {}, now=lambda: time.time() - 10)
    write_report(13, {})
    (taken,) = watched.first_steps()
    assert (taken.replica, taken.step) == (WORKER, 12)
    assert watched.loop.time() - 40 < taken.at_seconds < watched.loop.time() - 9


def test_a_step_in_a_file_of_tensorboard_belongs_to_the_replica_that_wrote_it(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path)
    trace = json.dumps({"keeper": 1}) + "\n" + json.dumps({"pid": os.getpid(), "ticks": 7}) + "\n"
    (watched.folder(WORKER) / "keeper").write_text(trace)
    output = tmp_path / "output"
    output.mkdir()
    old, new = (output / f"events.out.tfevents.{int(at)}.host.{os.getpid()}.0.v2" for at in (1e9, time.time() + 1))
    old.write_bytes((WRITTEN / "script").read_bytes())
    watched.loop.pass_time(60)
    assert watched.first_steps() == []  # the file is of another attempt
    new.write_bytes((WRITTEN / "script").read_bytes())
    watched.loop.pass_time(60)
    assert [taken.replica for taken in watched.first_steps()] == [WORKER]


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path)
    watched.say(WORKER, "step 1 loss 0.3\n" + "noise\n" * 100_000 + "step 9 loss 0.3\n")
    assert [taken.step for taken in watched.first_steps()] == [9]


def test_before_an_exit_is_judged_all_logs_are_read_even_if_the_next_check_is_not_due(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path)
    watched.check_seconds = 10.0
    assert watched.first_steps() == []
    watched.say(WORKER, "step 1 loss 0.3\n")
    assert watched.first_steps() == []
    assert [taken.step for taken in watched.first_steps(CHIEF)] == [1]
