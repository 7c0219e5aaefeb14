"""Each start and each exit is reported once, exits in their order, also to the next supervisor."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.engine.notes import End
from drumline.engine.tracker import LONGEST_HOLD_SECONDS, ReplicaTracker, Tracked
from drumline.plan.types import ReplicaId
from drumline.run.event import Event, Exit, ReplicaExited, ReplicaStarted
from drumline.run.incarnation import Incarnation
from scaffold.loops import SimulatedTimeLoop

WORKERS = tuple(Incarnation(ReplicaId("worker", index), 0) for index in range(3))


class Recorder:
    """A tracker in a folder, and all events that it reports."""

    def __init__(self, folder: Path) -> None:
        self.clock = SimulatedTimeLoop()
        self.reported: list[Event] = []
        self.tracker = ReplicaTracker(folder, Tracked, self.clock, self.reported.append)

    def end(self, index: int, at: float, *, has_started: bool = True, is_complete: bool = True) -> None:
        end = End(Exit(code=index), at, has_started=has_started)
        self.tracker.end(self.tracker.find(WORKERS[index]), end, is_complete=is_complete)

    @property
    def summary(self) -> list[tuple[str, int]]:
        """Return the reported events, as `started` or `ended` with the index of the worker."""
        kinds = {ReplicaStarted: "started", ReplicaExited: "ended"}
        events = [each for each in self.reported if isinstance(each, ReplicaStarted | ReplicaExited)]
        return [(kinds[type(each)], each.replica.index) for each in events]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def test_a_start_and_an_end_are_reported_once(recorder: Recorder) -> None:
    (worker,) = recorder.tracker.ask(WORKERS[:1])
    assert recorder.tracker.start(worker)
    assert not recorder.tracker.start(worker)
    for at in (5.0, 6.0):
        recorder.end(0, at)
    assert recorder.tracker.ask(WORKERS[:1]) == [worker]
    assert not recorder.tracker.start(worker)
    assert recorder.summary == [("started", 0), ("ended", 0)]
    assert isinstance(recorder.reported[-1], ReplicaExited)
    assert recorder.reported[-1].at_seconds == 5.0


def test_a_start_that_is_known_only_from_the_exit_is_reported_before_it(recorder: Recorder) -> None:
    recorder.tracker.ask(WORKERS)
    recorder.end(0, 5.0)
    recorder.end(1, 6.0, has_started=False)
    assert recorder.summary == [("started", 0), ("ended", 0), ("ended", 1)]


def test_a_start_is_not_reported_after_an_end_without_one(recorder: Recorder) -> None:
    recorder.end(0, 5.0, has_started=False, is_complete=False)
    worker = recorder.tracker.find(WORKERS[0])
    assert not recorder.tracker.start(worker)
    recorder.tracker.complete(worker)
    assert not recorder.tracker.start(worker)
    assert recorder.summary == [("ended", 0)]


def test_an_end_waits_for_its_log_and_for_ends_before_it(recorder: Recorder) -> None:
    first, second, _ = recorder.tracker.ask(WORKERS)
    recorder.end(1, 6.0, has_started=False, is_complete=False)
    recorder.end(0, 5.0, has_started=False, is_complete=False)
    recorder.end(2, 7.0, has_started=False)
    recorder.tracker.complete(second)
    assert recorder.summary == []
    recorder.tracker.complete(first)
    assert recorder.summary == [("ended", 0), ("ended", 1), ("ended", 2)]


def test_earlier_exits_are_reported_in_their_order_to_the_next_supervisor(recorder: Recorder, tmp_path: Path) -> None:
    recorder.tracker.ask(WORKERS)
    for index, at in ((2, 4.0), (0, 5.0), (1, 6.0)):
        recorder.end(index, at, has_started=index != 1)
    later = Recorder(tmp_path)
    later.tracker.ask(WORKERS)
    later.tracker.ask(WORKERS)
    assert later.reported == recorder.reported
    assert later.summary == [("started", 2), ("ended", 2), ("started", 0), ("ended", 0), ("ended", 1)]


def test_an_end_is_recorded_once_and_before_it_is_reported(tmp_path: Path) -> None:
    seen: list[str] = []
    trace = tmp_path / WORKERS[0].folder / "keeper"
    tracker = ReplicaTracker(tmp_path, Tracked, SimulatedTimeLoop(), lambda _: seen.append(trace.read_text()))
    tracker.end(tracker.find(WORKERS[0]), End(Exit(code=3), 5.0, has_started=False))
    assert len(seen) == 1
    assert '"over": true' in seen[0]
    Recorder(tmp_path).tracker.ask(WORKERS[:1])
    assert trace.read_text() == seen[0]


def test_exits_are_held_until_every_source_has_reported(recorder: Recorder) -> None:
    recorder.tracker.ask(WORKERS)
    first, second = recorder.tracker.hold("a"), recorder.tracker.hold("a")
    other = recorder.tracker.hold("b")
    recorder.end(1, 6.0, has_started=False)
    recorder.tracker.release("a", first)  # it has been held again since
    assert recorder.tracker.is_held("a", second)
    recorder.tracker.release("b", other)
    assert recorder.summary == []
    recorder.end(0, 5.0, has_started=False)
    recorder.tracker.release("a", second)
    assert not recorder.tracker.is_held("a", second)
    assert recorder.summary == [("ended", 0), ("ended", 1)]


def test_an_end_is_held_for_a_minute_at_most_but_never_without_its_log(recorder: Recorder) -> None:
    recorder.tracker.ask(WORKERS)
    recorder.tracker.hold("a")
    recorder.end(0, 5.0, has_started=False)
    recorder.end(1, 6.0, has_started=False, is_complete=False)
    recorder.clock.pass_time(LONGEST_HOLD_SECONDS - 1)
    assert recorder.summary == []
    recorder.clock.pass_time(1)
    assert recorder.summary == [("ended", 0)]


def test_a_folder_is_read_while_a_replica_runs_and_once_after_its_end(recorder: Recorder, tmp_path: Path) -> None:
    folder = tmp_path / WORKERS[0].folder
    recorder.tracker.find(WORKERS[1])  # not tracked
    recorder.tracker.ask(WORKERS[:1])
    assert [*recorder.tracker.traces()] == [*recorder.tracker.traces()] == [folder]
    recorder.end(0, 5.0, is_complete=False)
    assert [*recorder.tracker.traces()] == [folder]
    recorder.tracker.complete(recorder.tracker.find(WORKERS[0]))
    assert [*recorder.tracker.traces()] == [folder]
    assert [*recorder.tracker.traces()] == []


def test_ends_that_are_found_together_are_reported_in_their_order(recorder: Recorder, tmp_path: Path) -> None:
    recorder.tracker.ask(WORKERS[:1])
    recorder.end(0, 6.0)
    later = Recorder(tmp_path)
    with later.tracker.in_order():
        later.tracker.ask(WORKERS)
        later.end(2, 7.0, has_started=False)
        later.end(1, 5.0)
        assert later.summary == []
    assert later.summary == [("started", 1), ("ended", 1), ("started", 0), ("ended", 0), ("ended", 2)]
    assert later.clock.timers == 0


def test_a_replica_is_measured_while_it_runs_and_once_after_its_end(recorder: Recorder) -> None:
    worker, other, _ = recorder.tracker.ask(WORKERS)
    assert not worker.take_measured()
    recorder.tracker.start(worker)
    assert [worker.is_running, other.is_running] == [True, False]
    assert worker.take_measured()
    assert worker.take_measured()
    recorder.end(0, 5.0)
    recorder.end(1, 6.0, has_started=False)
    assert [worker.is_running, other.is_running] == [False, False]
    assert worker.take_measured()
    assert not worker.take_measured()
    assert not other.take_measured()


class KeeperTracked(Tracked):
    """A replica with an exit that its keeper records, and a start with a pid."""

    def describe_start(self) -> list[Event]:
        return [ReplicaStarted(self.id.replica, self.id.attempt, self.id.incarnation, pid=7)]

    def read_end(self) -> End | None:
        return End(Exit(code=4), 3.0, has_started=True) if self.id == WORKERS[1] else None

    def record_end(self, end: End) -> None:
        """Do nothing: the keeper has recorded it."""


def test_an_engine_may_record_exits_by_itself(tmp_path: Path) -> None:
    summary: list[Event] = []
    tracker = ReplicaTracker(tmp_path, KeeperTracked, SimulatedTimeLoop(), summary.append)
    first, _ = tracker.ask(WORKERS[:2])
    tracker.end(first, End(Exit(code=0), 5.0, has_started=True))
    starts = [ReplicaStarted(each.replica, 0, 0, pid=7) for each in WORKERS[:2]]
    ends = [
        ReplicaExited(WORKERS[0].replica, 0, 0, Exit(code=0), 5.0),
        ReplicaExited(WORKERS[1].replica, 0, 0, Exit(code=4), 3.0),
    ]
    assert summary == [starts[1], ends[1], starts[0], ends[0]]
    assert not [*tmp_path.iterdir()]
