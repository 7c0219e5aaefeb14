"""The contract of starts and exits: reported once and correctly, with every log line in its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.plan.types import ReplicaId
from drumline.run.event import Event, Exit, ReplicaExited, ReplicaStarted
from drumline.run.traces import trace_dir
from drumline.store.logs import LogReader
from scaffold.supervised import watch, worker
from scaffold.testbeds import NEVER, Behavior, EngineTestBed


def test_each_start_and_each_end_is_reported_once_in_that_order(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, *[Behavior(until=1)] * 3)
    recorder.start()
    recorder.until_started()
    assert not recorder.ends()
    testbed.open(1)
    recorder.until_ended()
    assert sorted(recorder.starts()) == sorted(recorder.exits()) == [worker(0), worker(1), worker(2)]
    for index in range(3):
        assert [type(each) for each in recorder.told if _is_about(each, worker(index))] == [
            ReplicaStarted,
            ReplicaExited,
        ]


def test_the_start_of_a_replica_that_ends_at_once_is_reported_before_its_end(
    testbed: EngineTestBed, tmp_path: Path
) -> None:
    recorder = watch(testbed, tmp_path, Behavior(code=3))
    recorder.start()
    recorder.until_ended()
    assert [type(each) for each in recorder.told if _is_about(each, worker(0))] == [ReplicaStarted, ReplicaExited]


def test_no_replica_is_started_twice(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior(("here",), until=1), Behavior(("here",)))
    recorder.start()
    recorder.start()
    recorder.until_started()
    recorder.until(recorder.ends)
    recorder.start()
    testbed.open(1)
    recorder.until_ended()
    recorder.start()
    recorder.run_other_replica()
    assert len(recorder.starts()) == len(recorder.ends()) == 2
    assert (recorder.log(worker(0)), recorder.log(worker(1))) == ("here\n", "here\n")


@pytest.mark.parametrize(
    ("behavior", "expected"),
    [
        (Behavior(), Exit(code=0)),
        (Behavior(code=3), Exit(code=3)),
        (Behavior(code=143), Exit(code=143)),
        (Behavior(signal=9), Exit(signal=9)),
        (Behavior(signal=6), Exit(signal=6)),
    ],
    ids=["code 0", "code 3", "code 143", "signal 9", "signal 6"],
)
def test_an_end_is_reported_with_its_status(
    testbed: EngineTestBed, tmp_path: Path, behavior: Behavior, expected: Exit
) -> None:
    recorder = watch(testbed, tmp_path, behavior)
    began = recorder.loop.time()
    recorder.start()
    recorder.until_ended()
    (end,) = recorder.ends()
    assert (end.replica, end.attempt, end.incarnation, end.exit) == (worker(0), 0, 0, expected)
    assert began <= end.at_seconds <= recorder.loop.time()


def test_a_later_exit_has_the_later_time(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior(until=2), Behavior(until=1, code=5))
    recorder.start()
    recorder.until_started()
    testbed.open(1)
    recorder.until(recorder.ends)
    testbed.open(2)
    recorder.until_ended()
    first, second = recorder.ends()
    assert (first.replica, second.replica) == (worker(1), worker(0))
    assert first.at_seconds < second.at_seconds


def test_a_stop_of_the_previous_attempt_does_not_stop_the_next_one(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior(("attempt $DRUMLINE_ATTEMPT",), until=NEVER, obeys=False))
    recorder.start(attempt=0)
    recorder.until_said("attempt 0")
    recorder.stop(attempt=0)  # it ignores TERM, and still runs during the next attempt
    recorder.start(attempt=1)
    recorder.until_said("attempt 1", attempt=1)
    recorder.stop(attempt=0, grace_seconds=0)
    recorder.until_ended(attempt=0)
    assert (len(recorder.ends(0)), recorder.ends(1)) == (1, [])
    recorder.stop(attempt=1, grace_seconds=0)
    recorder.until_ended(attempt=1)
    assert (len(recorder.starts(0)), len(recorder.starts(1))) == (1, 1)
    assert (recorder.log(attempt=0), recorder.log(attempt=1)) == ("attempt 0\n", "attempt 1\n")


def test_output_is_written_to_the_folder_of_the_incarnation(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior(("first", "second"), until=1))
    folder = recorder.run_dir / trace_dir(worker(0), 0)
    recorder.start()
    recorder.until_said("second")
    assert list(recorder.session.traces()) == [folder]
    assert list(recorder.session.traces()) == [folder]
    testbed.open(1)
    recorder.until(recorder.ends)
    assert list(recorder.session.traces()) == [folder], "what came last has to be looked at, once"
    assert list(recorder.session.traces()) == []
    blocks = LogReader(folder).read(until=0.0, ended=True)  # two where a moment ends between the lines
    assert b"".join(block.data for block in blocks) == b"first\nsecond\n"


def _is_about(event: Event, replica: ReplicaId) -> bool:
    return isinstance(event, ReplicaStarted | ReplicaExited) and event.replica == replica and event.attempt == 0
