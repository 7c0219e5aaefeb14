"""The summary of a run's folder: its state, times and cause."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drumline.errors import EngineError, NotFoundError
from drumline.run.event import AttemptPlaced, Exit, ReplicaExited, ReplicaStarted, RunAccepted, StopRequested
from drumline.store.index import Index, stamp_of, use_index
from drumline.store.summary import record_run, summarise
from scaffold.past_runs import NOON, ONE_WORKER, TWO_WORKERS, WORKER, append, finished, moments, running, write_run


def test_a_finished_run_has_its_times(tmp_path: Path) -> None:
    row = summarise(write_run(tmp_path, 4, finished()))
    assert (row.id, row.number, row.phase, row.is_final) == ("4", 4, "FINISHED", True)
    assert (row.created_at, row.started_at, row.finished_at) == (NOON, NOON + 10, NOON + 30)
    assert row.duration_seconds == 20.0


def test_a_failed_run_has_its_cause(tmp_path: Path) -> None:
    row = summarise(write_run(tmp_path, 4, finished(code=3)))
    assert (row.phase, row.reason, row.message) == ("FAILED", "Exited", "4.worker.0: exit code 3")


def test_a_running_run_has_a_start_and_no_end(tmp_path: Path) -> None:
    accepted, started, *_ = moments()
    row = summarise(write_run(tmp_path, 4, running(accepted, started)))
    assert (row.phase, row.is_final) == ("RUNNING", False)
    assert (row.started_at, row.started_since_boot, row.started_boot) == (NOON + 10, 510.0, "boot-a")
    assert (row.finished_at, row.duration_seconds) == (None, None)


def test_a_run_that_was_stopped_on_request_is_killed(tmp_path: Path) -> None:
    accepted, started, asked, ended = moments()
    exited = ReplicaExited(WORKER, 0, 0, Exit(signal=15), ended.since_boot)
    row = summarise(write_run(tmp_path, 4, [*running(accepted, started), (asked, StopRequested()), (ended, exited)]))
    assert (row.phase, row.reason, row.message) == ("KILLED", "Asked", "")


def test_a_run_that_was_restarted_counts_from_its_first_start(tmp_path: Path) -> None:
    accepted, started, fell, ended = moments()
    history = [
        *running(accepted, started),
        (fell, ReplicaExited(WORKER, 0, 0, Exit(1), fell.since_boot)),
        (fell, AttemptPlaced(1, ("127.0.0.1:20000",))),
        (fell, ReplicaStarted(WORKER, 1)),
        (ended, ReplicaExited(WORKER, 1, 0, Exit(0), ended.since_boot)),
    ]
    row = summarise(write_run(tmp_path, 4, history, spec=f"{ONE_WORKER}\nrestart: 1"))
    assert (row.phase, row.attempt, row.duration_seconds) == ("FINISHED", 1, 20.0)


def test_a_run_without_a_journal_was_only_created(tmp_path: Path) -> None:
    row = summarise(write_run(tmp_path, 4))
    assert (row.phase, row.is_final, row.started_at) == ("CREATED", False, None)


def test_a_clock_set_back_in_the_middle_of_a_run_gives_no_negative_duration(tmp_path: Path) -> None:
    accepted, started, _, ended = moments()
    set_back = ended.replace(at=NOON - 86_400)
    row = summarise(
        write_run(
            tmp_path,
            4,
            [*running(accepted, started), (set_back, ReplicaExited(WORKER, 0, 0, Exit(0), ended.since_boot))],
        )
    )
    assert row.finished_at == NOON - 86_400
    assert row.duration_seconds == 20.0


def test_a_truncated_journal_is_read_up_to_its_last_complete_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, finished())
    data = folder.journal_file.read_bytes()
    folder.journal_file.write_bytes(data[:-20])
    assert summarise(folder).phase == "RUNNING"


def test_the_row_has_the_project_the_parameters_and_the_roles(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    spec = f"{TWO_WORKERS}\nname: try\nparameters: {{lr: 0.1}}"
    row = summarise(write_run(tmp_path, 4, spec=spec, directory=link / ".." / "link"))
    assert (row.project, row.name, row.engine, row.framework) == ("digits", "try", "local", "plain")
    assert (row.replica_counts, row.parameters) == ({"worker": 2}, '{"lr": "0.1"}')
    assert row.directory == str(real.resolve())


def test_a_project_with_a_name_that_is_not_utf_8_can_be_recorded(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, finished(), directory=os.fsdecode(b"/caf\xe9"))
    record_run(folder)
    assert use_index(tmp_path, lambda index: [row.directory for row in index.rows()]) == ["/caf\\udce9"]


def test_the_row_has_the_stamp_of_its_journal(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, finished()[:-1])
    row = summarise(folder)
    assert row.stamp == stamp_of(folder.journal_file)
    append(folder, finished()[-1:])
    assert row.stamp != stamp_of(folder.journal_file)


def test_a_folder_without_a_plan_is_not_a_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4)
    folder.plan_file.unlink()
    with pytest.raises(NotFoundError):
        summarise(folder)


def test_a_recorded_verdict_does_not_depend_on_the_plan(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, finished())
    other = write_run(tmp_path, 5, spec="framework: plain\nroles: {chief: 1}")
    folder.plan_file.write_bytes(other.plan_file.read_bytes())
    assert summarise(folder).phase == "FINISHED"


def test_an_unreadable_folder_is_reported_in_one_sentence(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4)
    folder.journal_file.mkdir()
    with pytest.raises(EngineError, match="run 4 cannot be read: Is a directory"):
        summarise(folder)


def test_a_recorded_run_is_in_the_index_and_recording_it_again_changes_nothing(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, finished())
    record_run(folder)
    record_run(folder)
    assert use_index(tmp_path, lambda index: list(index.rows())) == [summarise(folder)]


def test_a_row_that_cannot_be_recorded_is_skipped_without_an_error(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").mkdir()
    record_run(write_run(tmp_path, 4, [(moments()[0], RunAccepted())]))
    assert not list((tmp_path / "index.sqlite").iterdir())


def test_a_run_that_cannot_be_read_is_not_recorded(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4)
    folder.plan_file.write_text("{")
    record_run(folder)
    assert use_index(tmp_path, Index.ids) == set()
