"""The details of one run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from drumline.errors import EngineError
from drumline.plan.types import ReplicaId
from drumline.run.event import (
    AttemptPlaced,
    Event,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    RunAccepted,
    StepsResumed,
    StepsStalled,
)
from drumline.runtime.lock import take_lock
from drumline.store.clock import Moment
from drumline.store.launch import add_facts
from drumline.view.run import ReplicaRow, run_details
from scaffold.past_runs import NOON, NOW, SECOND, TWO_WORKERS, WORKER, append, finished, moments, running, write_run


def two_workers_with_one_failure() -> list[tuple[Moment, Event]]:
    accepted, started, fell, ended = moments()
    return [
        (accepted, RunAccepted()),
        (accepted, AttemptPlaced(0, ("127.0.0.1:20000", "127.0.0.1:20001"))),
        (started, ReplicaStarted(WORKER, 0)),
        (started, ReplicaStarted(SECOND, 0)),
        (fell, ReplicaExited(SECOND, 0, 0, Exit(signal=9), fell.since_boot)),
        (ended, ReplicaExited(WORKER, 0, 0, Exit(signal=15), ended.since_boot)),
    ]


def by_id(rows: tuple[ReplicaRow, ...]) -> dict[str, ReplicaRow]:
    return {str(row.id): row for row in rows}


def test_every_replica_has_its_phase_its_times_and_its_exit(tmp_path: Path) -> None:
    details = run_details(write_run(tmp_path, 4, two_workers_with_one_failure(), spec=TWO_WORKERS), NOW)
    first, second = details.replicas
    assert (first.id, first.phase, first.reason, first.exit) == (WORKER, "KILLED", "PeerFailed", Exit(signal=15))
    assert (first.started_at, first.duration_seconds) == (NOON + 10, 20.0)
    assert (second.id, second.phase, second.reason, second.exit) == (SECOND, "FAILED", "Signalled", Exit(signal=9))
    assert (second.started_at, second.duration_seconds) == (NOON + 10, 10.0)
    assert (details.run.summary.phase, details.run.duration_seconds) == ("FAILED", 20.0)
    assert details.run.summary.message == "4.worker.1: killed by signal 9 (KILL)"


def test_the_chief_is_marked_under_any_name(tmp_path: Path) -> None:
    workers = run_details(write_run(tmp_path, 1, spec=TWO_WORKERS), NOW)
    assert [row.id for row in workers.replicas if row.is_chief] == [WORKER]
    chief = run_details(write_run(tmp_path, 2, spec="framework: plain\nroles: {chief: 1, worker: 1}"), NOW)
    assert [row.id for row in chief.replicas if row.is_chief] == [ReplicaId("chief", 0)]


def test_a_running_replica_has_a_duration_until_now_and_one_that_has_not_started_has_none(tmp_path: Path) -> None:
    details = run_details(write_run(tmp_path, 4, two_workers_with_one_failure()[:3], spec=TWO_WORKERS), NOW)
    first, second = details.replicas
    assert (first.phase, first.duration_seconds) == ("RUNNING", 90.0)
    assert (second.phase, second.started_at, second.duration_seconds) == ("STARTING", None, None)


def test_replicas_of_a_run_that_was_only_created_have_the_phase_created(tmp_path: Path) -> None:
    details = run_details(write_run(tmp_path, 4, spec=TWO_WORKERS), NOW)
    assert [(row.phase, row.exit) for row in details.replicas] == [("CREATED", None), ("CREATED", None)]


def test_the_end_of_a_replica_is_the_time_of_its_keeper_and_not_the_time_of_the_record(tmp_path: Path) -> None:
    accepted, started, fell, _ = moments()
    much_later = Moment(NOON + 7200, 7700.0, "boot-a")
    history = [
        *running(accepted, started),
        (much_later, ReplicaExited(WORKER, 0, 0, Exit(0), fell.since_boot)),
    ]
    (row,) = run_details(write_run(tmp_path, 4, history), NOW).replicas
    assert row.duration_seconds == 10.0


@pytest.mark.parametrize("stamp", [0.0, 9999.0], ids=["before its start", "after its record"])
def test_an_impossible_time_of_an_exit_is_not_used(tmp_path: Path, stamp: float) -> None:
    accepted, started, _, ended = moments()
    history = [*running(accepted, started), (ended, ReplicaExited(WORKER, 0, 0, Exit(0), stamp))]
    (row,) = run_details(write_run(tmp_path, 4, history), NOW).replicas
    assert row.duration_seconds == 20.0


def test_a_clock_set_back_gives_no_negative_duration(tmp_path: Path) -> None:
    accepted, started, _, ended = moments()
    set_back = ended.replace(at=NOON - 86_400)
    history = [*running(accepted, started), (set_back, ReplicaExited(WORKER, 0, 0, Exit(0), ended.since_boot))]
    details = run_details(write_run(tmp_path, 4, history), NOW)
    assert (details.run.duration_seconds, details.replicas[0].duration_seconds) == (20.0, 20.0)


def test_after_a_reboot_durations_are_measured_with_the_wall_clock(tmp_path: Path) -> None:
    accepted, started, *_ = moments()
    rebooted = Moment(NOON + 3610, 3.0, "boot-b")
    history = [*running(accepted, started), (rebooted, ReplicaExited(WORKER, 0, 0, Exit(), 3.0))]
    details = run_details(write_run(tmp_path, 4, history), NOW)
    assert (details.run.duration_seconds, details.replicas[0].duration_seconds) == (3600.0, 3600.0)


def test_earlier_attempts_are_listed_with_their_causes_and_rows_are_of_the_last_attempt(tmp_path: Path) -> None:
    accepted, started, fell, ended = moments()
    history: list[tuple[Moment, Event]] = [
        *running(accepted, started),
        (fell, ReplicaExited(WORKER, 0, 0, Exit(7), fell.since_boot)),
        (fell, AttemptPlaced(1, ("127.0.0.1:20000",))),
        (fell, ReplicaStarted(WORKER, 1)),
        (ended, ReplicaExited(WORKER, 1, 0, Exit(0), ended.since_boot)),
    ]
    details = run_details(write_run(tmp_path, 4, history, spec="framework: plain\nrestart: 1"), NOW)
    assert [(cause.attempt, cause.replica, cause.message) for cause in details.causes] == [
        (0, WORKER, "4.worker.0: exit code 7")
    ]
    (row,) = details.replicas
    assert (row.attempt, row.phase, row.started_at, row.duration_seconds) == (1, "FINISHED", NOON + 20, 10.0)


def test_the_output_is_in_the_store_unless_the_spec_names_a_folder(tmp_path: Path) -> None:
    own = write_run(tmp_path, 1)
    assert run_details(own, NOW).output_dir == str(own.path / "output")
    named = write_run(tmp_path, 2, spec="framework: plain\noutput: ./out/../results", directory="/project")
    assert run_details(named, NOW).output_dir == "/project/results"


def test_the_revision_is_shown_where_it_is_known(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4)
    assert (run_details(folder, NOW).revision, run_details(folder, NOW).is_dirty) == (None, None)
    add_facts(folder, revision="3558874", dirty=True)
    assert (run_details(folder, NOW).revision, run_details(folder, NOW).is_dirty) == ("3558874", True)


@pytest.mark.parametrize("facts", [b"", b"{", b"[]", json.dumps({"revision": 4, "dirty": "no"}).encode()])
def test_unreadable_facts_of_a_launch_hide_only_the_facts(tmp_path: Path, facts: bytes) -> None:
    folder = write_run(tmp_path, 4, finished())
    folder.facts_file.write_bytes(facts)
    details = run_details(folder, NOW)
    assert (details.run.summary.phase, details.run.summary.created_at) == ("FINISHED", NOON)
    assert (details.revision, details.is_dirty) == (None, None)


def test_the_supervisor_is_gone_if_its_lock_is_not_held(tmp_path: Path) -> None:
    accepted, started, *_ = moments()
    folder = write_run(tmp_path, 4, running(accepted, started))
    assert run_details(folder, NOW).run.supervisor_gone
    lock = take_lock(folder.lock_file)
    assert lock is not None
    try:
        assert not run_details(folder, NOW).run.supervisor_gone
    finally:
        os.close(lock)
    append(folder, finished()[-1:])
    assert not run_details(folder, NOW).run.supervisor_gone


def test_invalid_lines_of_the_journal_are_skipped(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, finished()[:-1])
    with folder.journal_file.open("ab") as journal:
        journal.write(b'\xff\xfe\n[1]\n"x"\n{"v": 99}\n')
    append(folder, finished()[-1:])
    assert run_details(folder, NOW).run.summary.phase == "FINISHED"


def test_a_plan_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4)
    folder.plan_file.write_bytes(b"\xff{")
    with pytest.raises(EngineError, match="the plan of run 4 cannot be read"):
        run_details(folder, NOW)


def test_the_rows_have_the_order_and_the_resources_of_the_plan(tmp_path: Path) -> None:
    spec = "framework: plain\nroles: {chief: 1, worker: {replicas: 2, resources: {cpus: 2, memory: 1GiB}}, ps: 1}"
    rows = by_id(run_details(write_run(tmp_path, 4, spec=spec), NOW).replicas)
    assert list(rows) == ["chief.0", "worker.0", "worker.1", "ps.0"]
    assert (rows["worker.1"].resources.cpus, rows["worker.1"].resources.memory_bytes) == (2.0, 1 << 30)
    assert rows["ps.0"].resources.cpus is None


def test_a_stalled_run_has_the_seconds_without_a_step_and_a_resumed_one_is_not_stalled(tmp_path: Path) -> None:
    began, later, *_ = moments()
    stalled = StepsStalled(0, 30, 100.0, 60.0, WORKER, "worker.0 is in spin (train.py:3)")
    history: list[tuple[Moment, Event]] = [
        (began, RunAccepted()),
        (began, AttemptPlaced(0, ("127.0.0.1:20000",))),
        (began, ReplicaStarted(WORKER, 0)),
        (later, stalled),
    ]
    folder = write_run(tmp_path, 4, history)
    now = later.replace(at=later.at + 180, since_boot=later.since_boot + 180)
    assert run_details(folder, now).run.stalled == stalled.replace(seconds=240.0)
    folder = write_run(tmp_path, 5, [*history, (later, StepsResumed(0, 31, 200.0))])
    assert run_details(folder, now).run.stalled is None
