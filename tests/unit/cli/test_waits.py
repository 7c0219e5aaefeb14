"""What replicas wait for before they start, in `status ID`, `status` and `logs`."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.cli import run
from drumline.run.event import (
    AttemptPlaced,
    Event,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    ReplicaWaits,
    RunAccepted,
    TimerFired,
)
from drumline.runtime.lock import take_lock
from drumline.store.clock import Moment
from scaffold.past_runs import SECOND, TWO_WORKERS, WORKER, moments, write_run
from scaffold.status_output import Captured, data, status

ACCEPTED, PLACED, WAITS, LATER = moments()
NO_ROOM = "none of 2 nodes can run it: 2 have too few free CPUs"


def history(*events: Event) -> list[tuple[Moment, Event]]:
    """Return the events of a placed attempt, followed by these."""
    begin: list[tuple[Moment, Event]] = [(ACCEPTED, RunAccepted()), (PLACED, AttemptPlaced(0, ("a:1", "a:2")))]
    return [*begin, *((WAITS, event) for event in events)]


@pytest.fixture
def waiting(home: Path) -> Path:
    """Write a run with a supervisor, a worker that runs and a worker that waits."""
    wait = ReplicaWaits(SECOND, 0, 0, "Unschedulable", NO_ROOM)
    folder = write_run(home, 4, history(ReplicaStarted(WORKER, 0), wait), spec=TWO_WORKERS, directory=Path.cwd())
    assert take_lock(folder.lock_file)
    return home


def test_the_status_of_a_run_shows_what_each_replica_waits_for(waiting: Path, capsys: Captured) -> None:
    assert status("4") == 0
    out = capsys.readouterr().out
    assert f"State:      STARTING: worker.1: {NO_ROOM}" in out
    row = next(line for line in out.splitlines() if line.startswith("4.worker.1"))
    assert "STARTING" in row
    assert "Unschedulable" in row
    assert NO_ROOM in row


def test_the_list_and_json_show_what_a_run_waits_for(waiting: Path, capsys: Captured) -> None:
    assert status() == 0
    assert f"worker.1: {NO_ROOM}" in capsys.readouterr().out
    found = data(capsys, "4")
    assert (found["state"], found["message"]) == ("STARTING", f"worker.1: {NO_ROOM}")
    assert [(each["state"], each["reason"], each["message"]) for each in found["replicas"]] == [
        ("RUNNING", "", ""),
        ("STARTING", "Unschedulable", NO_ROOM),
    ]


def test_logs_show_each_wait_once(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pulls = ReplicaWaits(WORKER, 0, 0, "ImagePull", "pulls its image")
    room = ReplicaWaits(SECOND, 0, 0, "Unschedulable", NO_ROOM)
    events = history(room, pulls, ReplicaWaits(WORKER, 0), ReplicaStarted(WORKER, 0), ReplicaStarted(SECOND, 0))
    write_run(home, 4, events, spec=TWO_WORKERS, directory=Path.cwd())
    run(["logs", "4", "--no-timestamps"])
    lines = [line.split("| ", 1) for line in capfd.readouterr().out.splitlines()]
    changes = [(name.strip(), text) for name, text in lines if text.startswith("-->")]
    assert changes == [
        ("4", "--> PENDING"),
        ("4", "--> STARTING"),
        ("4.worker.0", "--> STARTING"),
        ("4.worker.1", "--> STARTING"),
        ("4.worker.1", f"--> STARTING ({NO_ROOM})"),
        ("4.worker.0", "--> STARTING (pulls its image)"),
        ("4.worker.0", "--> RUNNING"),
        ("4.worker.1", "--> RUNNING"),
        ("4", "--> RUNNING"),
    ]


def test_a_run_that_failed_while_it_waited_shows_what_it_waited_for(home: Path, capsys: Captured) -> None:
    gone = [ReplicaExited(each, 0, 0, Exit(message="never started"), LATER.since_boot) for each in (WORKER, SECOND)]
    wait = ReplicaWaits(SECOND, 0, 0, "Unschedulable", NO_ROOM)
    write_run(home, 4, history(wait, TimerFired("start", 0), *gone), spec=TWO_WORKERS, directory=Path.cwd())
    words = f"did not start within 600 s: {NO_ROOM}; nor did 1 other"
    assert data(capsys, "4")["message"] == f"4.worker.1: {words}"
    assert status("4") == 0
    assert f"┃ Run 4 failed. First replica to fail: 4.worker.1, {words}" in capsys.readouterr().out
