"""The steps of a run are followed while its replicas print or report them."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline import runtime
from drumline.plan.types import ReplicaId
from drumline.run.goodput import Point
from drumline.run.state import ReplicaState, RunState
from drumline.runtime.progress import write_report
from drumline.store.folder import RunFolder
from drumline.view.steps import StepFollower, step_sources
from scaffold.gangs import gang

FIRST, SECOND = ReplicaId("worker", 0), ReplicaId("worker", 1)


class Watched:
    """A run with logs that the test writes, and a follower that is polled once a second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0
        self.follower = StepFollower(RunFolder(folder), gang("worker*2"), lambda: self.now)

    def print(self, text: str, where: str = "0/worker.0") -> None:
        traces = self.folder / "attempts" / where
        traces.mkdir(parents=True, exist_ok=True)
        with (traces / "log").open("a") as log:
            log.write(text)

    def poll(self, attempt: int = 0, incarnation: int = 0) -> None:
        self.now += 1.0
        replicas = {FIRST: ReplicaState(incarnation=incarnation), SECOND: ReplicaState()}
        self.follower.poll(RunState(attempt=attempt, replicas=replicas))


def test_each_step_is_returned_once_with_the_time_of_the_poll(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    run.poll()
    assert (run.follower.steps(0), run.follower.highest_step(0)) == (None, None)
    run.print("step 1 loss 0.5\nstep 2 lo")
    run.poll()
    run.print("ss 0.4\n")
    run.poll()
    steps = run.follower.steps(0)
    assert steps
    assert (steps.first, steps.last, run.follower.highest_step(0)) == (Point(2, 1), Point(3, 2), 2)


def test_steps_are_of_the_chief_if_it_has_any_and_the_highest_step_is_of_any_replica(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    run.print("step 7 loss 0.5\n", "0/worker.1")
    run.poll()
    assert run.follower.steps(0)
    run.print("step 3 loss 0.5\n")
    run.poll()
    steps = run.follower.steps(0)
    assert steps
    assert (steps.first.step, run.follower.highest_step(0)) == (3, 7)


def test_each_incarnation_has_separate_steps_and_its_last_lines_are_read(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    run.print("step 1 loss 0.5\n")
    run.poll()
    run.print("step 2 loss 0.5\n")
    run.print("step 1 loss 0.5\n", "1/worker.0")
    run.poll(attempt=1)
    before, after = run.follower.steps(0), run.follower.steps(1)
    assert before
    assert after
    assert (before.last.step, after.first) == (2, Point(2, 1))
    run.print("step 9 loss 0.5\n", "1/worker.0+1")
    run.poll(attempt=1, incarnation=1)
    newest = run.follower.steps(1)
    assert newest
    assert newest.first.step == 9


def test_steps_can_be_limited_to_a_time(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    for step in range(1, 5):
        run.print(f"step {step} loss 0.5\n")
        run.poll()
    later, earlier = run.follower.steps(0, since=2.0), run.follower.steps(0, until=2.0)
    assert later
    assert earlier
    assert (later.first.step, earlier.last.step, run.follower.steps(0, since=4.0)) == (3, 2, None)


def test_the_steps_of_a_script_that_only_reports_are_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Watched(tmp_path)
    run.print("hello\n")
    monkeypatch.setenv(runtime.TRACE_DIR, str(tmp_path / "attempts/0/worker.0"))
    for step in (4, 4, 5):
        write_report(step, {})
        run.poll()
    steps = run.follower.steps(0)
    assert steps
    assert (steps.first, steps.last) == (Point(1, 4), Point(3, 5))


def test_only_the_first_four_chief_and_workers_are_sources_of_steps() -> None:
    assert [str(name) for name in step_sources(gang("chief worker*9 ps evaluator"))] == [
        "chief.0",
        "worker.0",
        "worker.1",
        "worker.2",
    ]
