"""The stall watch of a run on the fake engine, with simulated time."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from drumline.engine.fake import FakeSession
from drumline.engine.fake.behavior import FakeBehavior, LogLine, command_of
from drumline.plan.bind import bind
from drumline.plan.types import ReplicaId
from drumline.run.event import AttemptPlaced, Event, FirstStepTaken, GangHung, RunAccepted, StepsResumed, StepsStalled
from drumline.run.traces import STEPS, TRACE, trace_dir
from drumline.runtime import TRACE_DIR
from drumline.runtime.progress import write_report
from drumline.supervise.marks import Marker
from drumline.supervise.stall import STEP, StallWatch
from scaffold.decisions import fold, step
from scaffold.fake_sessions import open_fake, read_events
from scaffold.gangs import gang
from scaffold.loops import SimulatedTimeLoop
from scaffold.summaries import write_scalars

FIRST = ReplicaId("worker", 0)
MAIN = 'Thread 1 (active): "MainThread"\n'
WAITS = f"{MAIN}    all_reduce (/x/torch/distributed/distributed_c10d.py:4)\n    main (train.py:9)\n"
SPINS = f"{MAIN}    spin (train.py:31)\n    main (train.py:9)\n"


def steps(*times: float) -> tuple[LogLine, ...]:
    """Return the lines of a script that takes a step at each of these times, in seconds."""
    return tuple(LogLine(f"step {number} loss 0.5", at) for number, at in enumerate(times, 1))


class WatchedRun:
    """A run on the fake engine with watched steps, and the events that are reported."""

    def __init__(self, folder: Path, *acts: FakeBehavior, steps_seconds: float | None = None) -> None:
        self.loop = SimulatedTimeLoop()
        plan = gang(f"worker*{len(acts)} framework=torch")
        replicas = [replica.replace(argv=command_of(act)) for replica, act in zip(plan.replicas, acts, strict=True)]
        timeouts = plan.timeouts.replace(steps_seconds=steps_seconds)
        self.plan = plan.replace(replicas=tuple(replicas), timeouts=timeouts)
        self.session = open_fake(folder, self.loop, FakeSession)
        self.reported = read_events(self.session, self.loop)
        placement = self.loop.wait(self.session.place(self.plan)).places
        self.loop.wait(self.session.start(bind(self.plan, placement)))
        addresses = tuple(place.address for place in placement.values())
        events = [RunAccepted(), AttemptPlaced(0, addresses), *self.reported, FirstStepTaken(0, FIRST, 1, 0.0)]
        self.state = fold(self.plan, events)
        output = str(folder / "output")
        self._watch = StallWatch(
            folder, self.plan, self.session, self._report, lambda: output, self.loop.time, self.loop.create_task
        )
        self._marker = Marker()
        self.reported.clear()
        self._tick()

    def _report(self, event: Event) -> None:
        self.reported.append(event)
        self.state, _ = step(self.plan, self.state, event)

    def _tick(self) -> None:
        self._watch.check(self.state, self._marker.mark(self.session.traces()))
        self.loop.call_later(0.25, self._tick)

    def passes(self, seconds: float) -> list[Event]:
        """Let these seconds pass; return the events about steps that were reported meanwhile."""
        self.reported.clear()
        self.loop.pass_time(seconds)
        return [event for event in self.reported if isinstance(event, StepsStalled | StepsResumed | GangHung)]


def test_a_run_without_further_steps_is_reported_once_as_stalled_with_the_blocking_replica(tmp_path: Path) -> None:
    spins = FakeBehavior(exit=None, lines=steps(*range(30)), stacks=SPINS)
    watched = WatchedRun(tmp_path, FakeBehavior(exit=None, lines=steps(*range(30)), stacks=WAITS), spins)
    assert watched.passes(80) == []
    (stalled,) = watched.passes(600)
    assert isinstance(stalled, StepsStalled)
    assert (stalled.step, str(stalled.replica)) == (30, "worker.1")
    assert 60 <= stalled.seconds < 63
    assert "spin (train.py:31)" in stalled.message


def test_a_long_evaluation_is_no_stall_if_an_earlier_one_took_long_too(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path, FakeBehavior(exit=None, lines=steps(0, 1, 2, 42, 43, 44, 344)))
    assert watched.passes(400) == []


def test_a_stalled_run_that_takes_a_step_is_no_longer_stalled(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path, FakeBehavior(exit=None, lines=steps(*range(10), 200)))
    stalled, resumed = watched.passes(210)
    assert isinstance(stalled, StepsStalled)
    assert isinstance(resumed, StepsResumed)
    assert resumed.step == 11


def test_a_run_that_names_its_last_step_is_not_stalled_after_it(tmp_path: Path) -> None:
    lines = tuple(LogLine(f"step {number}/10 loss 0.5", number) for number in range(1, 11))
    assert WatchedRun(tmp_path, FakeBehavior(exit=None, lines=lines)).passes(3600) == []


def test_a_run_hangs_if_its_spec_limits_the_time_without_a_step(tmp_path: Path) -> None:
    watched = WatchedRun(tmp_path, FakeBehavior(exit=None, lines=steps(*range(10))), steps_seconds=20.0)
    assert watched.passes(28) == []
    assert watched.passes(10)[0] == GangHung(0, "no step for 20s, since step 10")


def write_trace(folder: Path) -> Path:
    """Write a trace in which the first worker is this process and started long ago; return its folder."""
    traces = folder / trace_dir(FIRST, 0)
    traces.mkdir(parents=True, exist_ok=True)
    (traces / TRACE).write_text(json.dumps({"keeper": 1}) + "\n" + json.dumps({"pid": os.getpid(), "ticks": 7}) + "\n")
    os.utime(traces / TRACE, (1.6e9, 1.6e9))
    return traces


def noted_steps(traces: Path) -> list[int]:
    """Return the steps that were recorded in the file beside the log."""
    return [step for _, _, step in STEP.iter_unpack((traces / STEPS).read_bytes())]


def test_steps_that_are_only_in_files_of_tensorboard_may_be_two_minutes_late(tmp_path: Path) -> None:
    watched, traces = WatchedRun(tmp_path, FakeBehavior(exit=None)), write_trace(tmp_path)
    for number in range(1, 6):
        write_scalars(tmp_path / "output", "loss", [0.5] * (number + 1))
        assert watched.passes(10) == []
    assert watched.passes(160) == []
    (stalled,) = watched.passes(40)
    assert isinstance(stalled, StepsStalled)
    assert stalled.step == 5
    assert 180 <= stalled.seconds < 186
    assert noted_steps(traces) == [1, 2, 3, 4, 5]
    write_scalars(tmp_path / "output", "loss", [0.5] * 7)
    assert [type(event) for event in watched.passes(10)] == [StepsResumed]


def test_the_steps_timeout_is_extended_by_the_buffering_of_tensorboards_writers(tmp_path: Path) -> None:
    watched, _ = WatchedRun(tmp_path, FakeBehavior(exit=None), steps_seconds=20.0), write_trace(tmp_path)
    write_scalars(tmp_path / "output", "loss", [0.5] * 3)
    assert watched.passes(130) == []
    assert isinstance(watched.passes(20)[0], GangHung)


def test_reported_steps_are_watched_and_recorded_with_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, traces = WatchedRun(tmp_path, FakeBehavior(exit=None)), write_trace(tmp_path)
    monkeypatch.setenv(TRACE_DIR, str(traces))
    for number in range(1, 6):
        write_report(number, {"loss": 0.5})
        assert watched.passes(2) == []
    (stalled,) = watched.passes(70)
    assert isinstance(stalled, StepsStalled)
    assert (stalled.step, noted_steps(traces)) == (5, [1, 2, 3, 4, 5])


def test_the_times_of_steps_in_a_log_are_not_recorded_separately(tmp_path: Path) -> None:
    watched, traces = WatchedRun(tmp_path, FakeBehavior(exit=None, lines=steps(*range(10)))), write_trace(tmp_path)
    watched.passes(20)
    assert not (traces / STEPS).exists()
