"""`drumline events` prints a journal as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drumline.cli import run
from drumline.run.event import (
    AttemptPlaced,
    Cause,
    CauseNamed,
    DelayChosen,
    EngineFailed,
    EngineWarned,
    Event,
    Exit,
    FirstStepTaken,
    GangHung,
    ProjectCarried,
    RendezvousFailed,
    ReplicaExited,
    ReplicaStarted,
    ReplicaWaits,
    ResumeRequested,
    RunAccepted,
    StacksTaken,
    StepsResumed,
    StepsStalled,
    StopRequested,
    SummariesFound,
    SupervisorReturned,
    TensorBoardServed,
    TimerFired,
)
from scaffold.past_runs import SECOND, TWO_WORKERS, WORKER, append, moments, write_run

Captured = pytest.CaptureFixture[str]


CAUSE = Cause(SECOND, 0, Exit(1), "crash", "Exited")


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (RunAccepted(), "4 was accepted"),
        (ProjectCarried(6, 5_700_000), "4 has its project where it runs: 5.7 MB, 6 files"),
        (ProjectCarried(6, 5_700_000, 3), "4 has its project on 3 hosts: 5.7 MB, 6 files"),
        (SummariesFound(), "4 has written summaries"),
        (TensorBoardServed("http://127.0.0.1:20003/"), "4.tensorboard answers at http://127.0.0.1:20003/"),
        (AttemptPlaced(0, ("a:1",)), "4 was placed for attempt 0: 1 replica at a:1"),
        (AttemptPlaced(1, ("a:1", "a:2")), "4 was placed for attempt 1: 2 replicas at a:1 to a:2"),
        (ReplicaStarted(WORKER, 0, pid=77), "4.worker.0 started as process 77"),
        (ReplicaStarted(WORKER, 0), "4.worker.0 started"),
        (ReplicaWaits(WORKER, 0, 0, "ImagePull", "no image"), "4.worker.0 waits: no image"),
        (ReplicaWaits(WORKER, 0), "4.worker.0 waits for its start"),
        (ReplicaWaits(WORKER, 0, 0, "Config", "no key", is_fatal=True), "4.worker.0 cannot start: no key"),
        (ReplicaExited(SECOND, 0, 0, Exit(signal=9), 1.0), "4.worker.1 exited: killed by signal 9 (KILL)"),
        (ReplicaExited(SECOND, 0, 0, Exit(0), 1.0), "4.worker.1 exited: exit code 0"),
        (FirstStepTaken(1, WORKER, 60, 1.0), "4 took step 60, the first of attempt 1, as worker.0 reports"),
        (FirstStepTaken(0, WORKER, None, 1.0), "4 took its first step of attempt 0, as worker.0 reports"),
        (GangHung(0, "no progress for 30m"), "4 hangs: no progress for 30m"),
        (RendezvousFailed(0, WORKER, "after 10m …"), "4 did not form a rendezvous: after 10m …"),
        (StacksTaken(0, WORKER, "worker.0 is in f\x1b"), "4 saved its stack traces: worker.0 is in f\\x1b"),
        (StacksTaken(0), "4 saved its stack traces"),
        (
            StepsStalled(0, 30, 1.0, 90.0, SECOND, "worker.1 is in f\x1b"),
            "4 is stalled: no step for 1m30s, since step 30; worker.1 is in f\\x1b",
        ),
        (StepsResumed(0, 31, 200.0), "4 takes steps again: step 31"),
        (CauseNamed(0, CAUSE, "worker.1: exit code 1"), "4 fails: worker.1: exit code 1"),
        (
            CauseNamed(0, CAUSE, "worker.1: exit code 1", is_correction=True),
            "4 fails for another cause than named before: worker.1: exit code 1",
        ),
        (StepsResumed(0, None, 200.0), "4 takes steps again"),
        (StopRequested(), "4 was asked to stop"),
        (StopRequested(force=True), "4 was asked to stop at once"),
        (StopRequested(preempted=True), "4 was preempted: its supervisor was asked to exit"),
        (ResumeRequested(), "4 was resumed"),
        (TimerFired("linger", 0), "4 waited long enough: linger of attempt 0"),
        (DelayChosen(1, 2.5), "4 waits 2.5s before attempt 1"),
        (EngineWarned(0, "no limit\x1b[2J"), "4 warning: no limit\\x1b[2J"),
        (EngineFailed(0, "no free port\x1b[2J"), "4 could not continue: no free port\\x1b[2J"),
        (SupervisorReturned(), "4 has a supervisor again"),
        (SupervisorReturned(2, 5), "4 has a supervisor again, restarted automatically, 2 of 5"),
    ],
)
def test_every_event_is_a_line_with_its_time_and_its_id(home: Path, capsys: Captured, event: Event, line: str) -> None:
    write_run(home, 4, [(moments()[0], event)], spec=TWO_WORKERS)
    assert run(["events", "4"]) == 0
    assert capsys.readouterr() == (f"[2024-01-01T12:00:00Z] {line}\n", "")


def test_the_events_of_a_replica_are_only_those_of_that_replica(home: Path, capsys: Captured) -> None:
    accepted, started, _, ended = moments()
    write_run(
        home,
        4,
        [
            (accepted, RunAccepted()),
            (started, ReplicaStarted(WORKER, 0)),
            (started, ReplicaStarted(SECOND, 0)),
            (ended, ReplicaExited(SECOND, 0, 0, Exit(1), ended.since_boot)),
        ],
        spec=TWO_WORKERS,
    )
    assert run(["events", "4.worker.1"]) == 0
    assert capsys.readouterr().out == (
        "[2024-01-01T12:00:10Z] 4.worker.1 started\n[2024-01-01T12:00:30Z] 4.worker.1 exited: exit code 1\n"
    )


def test_events_can_be_printed_as_json(home: Path, capsys: Captured) -> None:
    write_run(home, 4, [(moments()[0], RunAccepted()), (moments()[1], ReplicaStarted(WORKER, 0, pid=77))])
    assert run(["events", "4", "-o", "json"]) == 0
    accepted, started = json.loads(capsys.readouterr().out)
    assert accepted == {"at": "2024-01-01T12:00:00Z", "id": "4", "event": "RunAccepted"}
    assert (started["at"], started["id"], started["event"]) == ("2024-01-01T12:00:10Z", "4.worker.0", "ReplicaStarted")
    assert started["pid"] == 77


def test_a_torn_line_is_no_event(home: Path, capsys: Captured) -> None:
    folder = write_run(home, 4, [(moments()[0], RunAccepted()), (moments()[1], StopRequested())])
    folder.journal_file.write_bytes(folder.journal_file.read_bytes()[:-3])
    assert run(["events", "4"]) == 0
    assert capsys.readouterr().out == "[2024-01-01T12:00:00Z] 4 was accepted\n"


def test_a_run_with_an_empty_journal_has_no_events(home: Path, capsys: Captured) -> None:
    append(write_run(home, 4), [])
    assert run(["events", "4"]) == 0
    assert capsys.readouterr() == ("", "")


def test_an_unknown_id_is_refused_with_the_existing_ids(home: Path, capsys: Captured) -> None:
    write_run(home, 4)
    assert run(["events", "9"]) == 4
    assert capsys.readouterr() == ("", "error: there is no run 9\nhint: there is run 4\n")


def test_a_restart_is_shown_with_the_reason_of_the_end_of_the_attempt_before(home: Path, capsys: Captured) -> None:
    accepted, started, _, ended = moments()
    write_run(
        home,
        4,
        [
            (accepted, RunAccepted()),
            (accepted, AttemptPlaced(0, ("a:1",))),
            (started, ReplicaStarted(WORKER, 0)),
            (ended, ReplicaExited(WORKER, 0, 0, Exit(1), ended.since_boot)),
        ],
        spec="framework: plain\nrestart: {crash: 2}",
    )
    assert run(["events", "4"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "[2024-01-01T12:00:30Z] 4.worker.0 exited: exit code 1",
        "[2024-01-01T12:00:30Z] 4: attempt 1 begins (restart 1 of 2): worker.0: exit code 1",
    ]
