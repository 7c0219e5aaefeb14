"""`drumline status` of runs written by hand."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from drumline.plan.types import TENSORBOARD
from drumline.run.event import (
    AttemptPlaced,
    Event,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    RunAccepted,
    StepsResumed,
    StepsStalled,
    SummariesFound,
    TensorBoardServed,
)
from drumline.run.traces import LOG, TRACE, trace_dir
from drumline.runtime.lock import take_lock
from drumline.store.clock import Moment
from drumline.store.folder import RunFolder
from scaffold.past_runs import (
    NOON,
    ONE_WORKER,
    SECOND,
    TWO_WORKERS,
    WORKER,
    append,
    finished,
    moments,
    running,
    write_run,
)
from scaffold.status_output import Captured, cells, data, status

NOTHING_KNOWN = dict.fromkeys(
    ("epoch", "epochs", "step", "steps", "loss", "steps_per_second", "eta_seconds", "steps_eta_seconds")
)


def test_status_without_runs_names_the_command_that_starts_one(home: Path, capsys: Captured) -> None:
    assert status() == 0
    assert capsys.readouterr() == ("", "no runs yet: `drumline train` starts one\n")
    assert data(capsys) == []
    assert not home.exists()


def test_status_in_a_project_without_runs_names_the_option_that_lists_other_projects(
    home: Path, capsys: Captured
) -> None:
    write_run(home, 1, finished(), directory="/elsewhere")
    assert status() == 0
    out, err = capsys.readouterr()
    assert (out, "drumline status -a" in err) == ("", True)


def test_runs_are_listed_newest_first_with_their_causes(home: Path, capsys: Captured) -> None:
    write_run(home, 1, finished(), directory=Path.cwd())
    write_run(home, 2, finished(code=3), directory=Path.cwd(), spec=f"{ONE_WORKER}\nname: second-try")
    write_run(home, 3, finished(), directory="/elsewhere")
    assert status() == 0
    out, err = capsys.readouterr()
    assert out.split("\n", 1)[0].split() == ["ID", "PROJECT", "NAME", "STATE", "AGE", "DURATION", "REPLICAS", "NOTE"]
    rows = [[cell for cell in row if not cell.endswith("d")] for row in cells(out)]  # the age depends on today
    assert [row[0] for row in rows] == ["2", "1"]
    assert "FAILED" in rows[0]
    assert rows[0][-3:] == ["20s", "1 worker", "2.worker.0: exit code 3"]
    assert "FINISHED" in rows[1]
    assert err == ""


def test_runs_of_all_projects_are_listed_with_the_option(home: Path, capsys: Captured) -> None:
    write_run(home, 1, finished(), directory=Path.cwd())
    write_run(home, 2, finished(), directory="/elsewhere")
    assert [run["id"] for run in data(capsys)] == ["1"]
    assert [(run["id"], run["directory"]) for run in data(capsys, "-a")] == [
        ("2", "/elsewhere"),
        ("1", str(Path.cwd())),
    ]


def test_ten_runs_are_listed_without_a_limit_on_the_command_line(home: Path, capsys: Captured) -> None:
    for number in range(1, 13):
        write_run(home, number, finished(), directory=Path.cwd())
    assert status() == 0
    out, err = capsys.readouterr()
    assert (len(cells(out)), err) == (10, "there are older runs: `-n 0` shows all\n")
    assert len(data(capsys, "-n", "3")) == 3
    assert len(data(capsys, "-n", "0")) == 12


def test_every_value_of_a_run_is_in_its_json(home: Path, capsys: Captured) -> None:
    write_run(home, 4, finished(code=3), directory=Path.cwd(), spec=f"{ONE_WORKER}\nparameters: {{lr: 0.1}}")
    expected = {
        "id": "4",
        "project": "digits",
        "name": "digits",
        "directory": str(Path.cwd()),
        "framework": "plain",
        "engine": "local",
        "state": "FAILED",
        "reason": "Exited",
        "message": "4.worker.0: exit code 3",
        "created_at": "2024-01-01T12:00:00Z",
        "started_at": "2024-01-01T12:00:10Z",
        "finished_at": "2024-01-01T12:00:30Z",
        "duration_seconds": 20.0,
        "attempt": 0,
        "roles": {"worker": 1},
        "parameters": {"lr": "0.1"},
        "supervisor_gone": False,
        "progress": NOTHING_KNOWN,
        "stalled": None,
    }
    assert data(capsys) == [expected]
    assert data(capsys, "4") == {
        "cause": {
            "replica": "4.worker.0",
            "reason": "Exited",
            "class": "crash",
            "exit_code": 3,
            "signal": None,
            "out_of_memory": False,
            "python": None,
            "message": "exit code 3",
            "error": None,
            "attempt": 0,
            "at": "2024-01-01T12:00:30Z",
            "progress": {"replica": None, **NOTHING_KNOWN},
            "traceback": None,
            "last_lines": [],
            "followed": [],
            "stopped": [],
            "corrects": None,
        },
        **expected,
        "environment": None,
        "output_dir": str(home / "runs" / "4" / "output"),
        "folder": str(home / "runs" / "4"),
        "revision": None,
        "dirty": None,
        "causes": [],
        "goodput": {
            "seconds": 30.0,
            "productive": None,
            "productive_seconds": None,
            "waiting_seconds": 0.0,
            "starting_seconds": None,
            "evaluating_seconds": None,
            "saving_seconds": None,
            "idle_seconds": None,
            "recomputed_seconds": None,
            "down_seconds": 0.0,
            "recomputed_steps": None,
            "restarts": [],
        },
        "python": None,
        "revivals": [],
        "warnings": [],
        "tensorboard": None,
        "replicas": [
            {
                "id": "4.worker.0",
                "state": "FAILED",
                "is_chief": True,
                "host": None,
                "attempt": 0,
                "incarnation": 0,
                "started_at": "2024-01-01T12:00:10Z",
                "duration_seconds": 20.0,
                "exit_code": 3,
                "signal": None,
                "reason": "Exited",
                "message": "",
                "error": None,
                "progress": NOTHING_KNOWN,
                "behind": False,
                "resources": {"cpus": None, "memory_bytes": None, "gpus": None},
            }
        ],
    }


def test_the_status_of_one_run_is_a_page(home: Path, capsys: Captured) -> None:
    spec = """\
        framework: plain
        parameters: {lr: 0.1, note: two words}
        output: results
        resources: {cpus: 2, memory: 1.5GiB, gpus: 1}
    """
    accepted, started, _, ended = moments()
    exited = ReplicaExited(WORKER, 0, 0, Exit(signal=9), ended.since_boot)
    write_run(home, 4, [*running(accepted, started), (ended, exited)], spec=spec, directory="/project")
    assert status("4") == 0
    card, head, table = capsys.readouterr().out.split("\n\n")
    assert card.splitlines() == [
        "┃ Run 4 failed. First replica to fail: 4.worker.0, killed by signal 9 (KILL)",
        "┃ 2024-01-01T12:00:30Z, 20s after its start, attempt 0",
    ]
    facts = dict(line.split(":", 1) for line in head.splitlines())
    assert {name: value.strip() for name, value in facts.items() if name != "Started"} == {
        "Run": "4 (digits), plain on local",
        "State": "FAILED: 4.worker.0: killed by signal 9 (KILL)",
        "Duration": "20s",
        "Parameters": "lr=0.1 note='two words'",
        "Directory": "/project",
        "Output": "/project/results",
    }
    assert facts["Started"].strip().startswith("2024-01-01T12:00:10Z, ")
    assert table.splitlines()[0].split() == [
        "REPLICA", "STATE", "STARTED", "DURATION", "EXIT", "REASON", "CPUS", "MEMORY", "GPUS",
    ]  # fmt: skip
    assert cells(table) == [
        ["4.worker.0 (chief)", "FAILED", "12:00:10Z", "20s", "9 (KILL)", "Signalled", "2", "1.5GiB", "1"]
    ]


def test_the_exception_that_ended_a_replica_is_shown_in_its_row(home: Path, capsys: Captured) -> None:
    folder = write_run(home, 4, finished(code=1), directory=Path.cwd())
    trace_folder = folder.path / trace_dir(WORKER, 0)
    trace_folder.mkdir(parents=True)
    kept = {"v": 1, "type": "ValueError", "message": "bad \x1b[2J rows\nin 7", "traceback": "…", "at": NOON}
    (trace_folder / "error").write_text(json.dumps(kept))
    assert status("4") == 0
    assert capsys.readouterr().out.rstrip().endswith("  ValueError: bad \\x1b[2J rows")
    (replica,) = data(capsys, "4")["replicas"]
    assert replica["error"] == {"type": "ValueError", "message": "bad \x1b[2J rows\nin 7", "at": "2024-01-01T12:00:00Z"}
    (trace_folder / "error").write_text(json.dumps({**kept, "message": "x" * 500}))
    assert status("4") == 0
    assert capsys.readouterr().out.rstrip().endswith("x…")


def two_that_train(home: Path, first: str, second: str) -> Path:
    """Write a run of two workers that are training, with their logs; it has a supervisor while its lock is held."""
    accepted, started, *_ = moments(at=time.time() - 30)
    history: list[tuple[Moment, Event]] = [
        (accepted, RunAccepted()),
        (accepted, AttemptPlaced(0, ("127.0.0.1:20000", "127.0.0.1:20001"))),
        (started, ReplicaStarted(WORKER, 0)),
        (started, ReplicaStarted(SECOND, 0)),
    ]
    folder = write_run(home, 4, history, spec=TWO_WORKERS, directory=Path.cwd())
    written = time.time() + 600  # the remaining time is counted from the time of the log
    for replica, text in ((WORKER, first), (SECOND, second)):
        trace_folder = folder.path / trace_dir(replica, 0)
        trace_folder.mkdir(parents=True)
        (trace_folder / LOG).write_text(text)
        os.utime(trace_folder / LOG, (written, written))
    return folder.lock_file


KERAS = "Epoch 2/3\n%d/100 ━━━━━━━━━━ 3s 500ms/step - accuracy: 0.9 - loss: %s\n"


def test_the_progress_of_a_run_is_shown_in_its_row(home: Path, capsys: Captured) -> None:
    lock = take_lock(two_that_train(home, KERAS % (90, "0.31456"), KERAS % (40, "nan")))
    assert lock is not None
    assert status() == 0
    assert cells(capsys.readouterr().out)[0][-1] == "epoch 2/3, step 90/100, loss 0.3146"
    assert status("4") == 0
    table = capsys.readouterr().out.split("\n\n")[1]
    assert table.splitlines()[0].split()[4:] == ["EPOCH", "STEP", "LOSS", "ETA"]
    assert [row[4:] for row in cells(table)] == [
        ["2/3", "90/100", "0.3146", "55s"],
        ["2/3", "40/100 (behind)", "nan", "1m20s"],
    ]
    os.close(lock)


def test_the_list_shows_how_long_a_run_is_stalled_and_since_which_step(home: Path, capsys: Captured) -> None:
    lock = take_lock(two_that_train(home, "step 30 loss 0.5\n", "step 30 loss 0.5\n"))
    told = moments(at=time.time() - 200, up=560.0)[1]
    append(RunFolder(home / "runs" / "4"), [(told, StepsStalled(0, 30, 510.0, 60.0, SECOND, "worker.1 is in spin"))])
    assert status() == 0
    assert re.fullmatch(
        r"stalled: no step for 4m1\ds, since step 30; worker\.1 is in spin", cells(capsys.readouterr().out)[0][-1]
    )
    (row,) = data(capsys)
    assert 250 <= row["stalled"].pop("seconds") < 260
    assert row["stalled"].pop("message").endswith("since step 30; worker.1 is in spin")
    assert row["stalled"] == {"step": 30, "replica": "4.worker.1"}
    assert data(capsys, "4")["stalled"]["replica"] == "4.worker.1"
    assert status("4") == 0
    assert re.search(r"Stalled: +no step for 4m1\ds, since step 30; worker\.1 is in spin\n", capsys.readouterr().out)
    append(RunFolder(home / "runs" / "4"), [(told, StepsResumed(0, 31, 760.0))])
    assert status() == 0
    assert cells(capsys.readouterr().out)[0][-1] == "step 30, loss 0.5"
    assert data(capsys)[0]["stalled"] is None
    os.close(lock or 0)


def test_the_progress_of_a_run_is_in_its_json(home: Path, capsys: Captured) -> None:
    two_that_train(home, KERAS % (90, "0.31456"), KERAS % (40, "nan"))
    first = {
        "epoch": 2,
        "epochs": 3,
        "step": 90,
        "steps": 100,
        "loss": 0.31456,
        "steps_per_second": 2.0,
        "eta_seconds": 55.0,
        "steps_eta_seconds": 5.0,
    }
    second = {**first, "step": 40, "loss": "nan", "eta_seconds": 80.0, "steps_eta_seconds": 30.0}
    whole = data(capsys, "4")
    assert whole["progress"] == first
    assert [(each["progress"], each["behind"]) for each in whole["replicas"]] == [(first, False), (second, True)]
    assert [each["progress"] for each in data(capsys)] == [first]


def test_tensorboard_has_a_row_and_its_address_while_it_answers(home: Path, capsys: Captured) -> None:
    accepted, started, found, ended = moments()
    folder = write_run(home, 4, running(accepted, started), spec="framework: tensorflow")
    assert status("4") == 0
    assert "TensorBoard" not in capsys.readouterr().out
    append(folder, [(found, SummariesFound()), (found, ReplicaStarted(TENSORBOARD, 0, pid=7))])
    assert status("4") == 0
    out = capsys.readouterr().out
    assert "\nTensorBoard: starting\n" in out
    assert "\n4.tensorboard " in out
    append(folder, [(found, TensorBoardServed("http://127.0.0.1:20003/"))])
    assert status("4.worker.0") == 0
    out = capsys.readouterr().out
    assert "\nTensorBoard: http://127.0.0.1:20003/\n" in out
    assert "4.tensorboard" not in out
    shown = data(capsys, "4.tensorboard")
    assert shown["tensorboard"] == {"state": "RUNNING", "address": "http://127.0.0.1:20003/"}
    assert [row["id"] for row in shown["replicas"]] == ["4.tensorboard"]
    over = ReplicaExited(WORKER, 0, 0, Exit(0), ended.since_boot)
    append(folder, [(ended, over), (ended, ReplicaExited(TENSORBOARD, 0, 0, Exit(0), ended.since_boot))])
    assert status("4") == 0
    assert "\nTensorBoard: ended; `drumline tensorboard 4` shows the run again\n" in capsys.readouterr().out
    assert data(capsys, "4")["tensorboard"] == {"state": "FINISHED", "address": None}


def test_the_progress_of_a_run_without_output_comes_from_its_tensorboard_summaries(
    home: Path, capsys: Captured
) -> None:
    two_that_train(home, "", "")
    run_folder = home / "runs" / "4"
    (run_folder / trace_dir(WORKER, 0) / TRACE).write_text('{"pid": 7, "ticks": 1}\n')
    written = run_folder / "output" / "train" / f"events.out.tfevents.{int(time.time())}.host.7.0.v2"
    written.parent.mkdir(parents=True)
    written.write_bytes((Path(__file__).parents[1] / "run" / "scalars" / "keras").read_bytes())
    assert data(capsys)[0]["progress"]["epoch"] == 3
    assert [each["progress"]["epoch"] for each in data(capsys, "4")["replicas"]] == [3, None]


def test_unknown_values_have_no_column(home: Path, capsys: Captured) -> None:
    tqdm = " 45%|████▌     | 45/100 [00:10<00:11,  5.00it/s]\n"
    two_that_train(home, "loading data\n", tqdm)
    assert status("4") == 0
    table = capsys.readouterr().out.split("\n\n")[1]
    assert table.splitlines()[0].split()[4:] == ["STEP", "ETA"]
    assert [row[4:] for row in cells(table)] == [[], ["45/100", "11s to step 100"]]
    assert data(capsys, "4")["progress"] == NOTHING_KNOWN


def test_the_page_of_a_run_has_the_causes_of_earlier_attempts(home: Path, capsys: Captured) -> None:
    accepted, started, fell, ended = moments()
    history = [
        *running(accepted, started),
        (fell, ReplicaExited(WORKER, 0, 0, Exit(7), fell.since_boot)),
        (fell, AttemptPlaced(1, ("127.0.0.1:20000",))),
        (fell, ReplicaStarted(WORKER, 1)),
        (ended, ReplicaExited(WORKER, 1, 0, Exit(0), ended.since_boot)),
    ]
    write_run(home, 4, history, spec=f"{ONE_WORKER}\nrestart: 1")
    assert status("4") == 0
    out = capsys.readouterr().out
    assert "FINISHED: attempt 1\n" in out
    assert "attempt 0: 4.worker.0: exit code 7\n" in out


def test_the_page_of_a_usual_gang_fits_into_eighty_columns(home: Path, capsys: Captured) -> None:
    spec = "framework: plain\nroles: {chief: 1, worker: 2, ps: 1}\nresources: {cpus: 16, memory: 64GiB}"
    write_run(home, 4321, finished(), spec=spec, directory="/project")
    assert status("4321") == 0
    table = capsys.readouterr().out.split("\n\n")[1]
    assert max(len(line) for line in table.splitlines()) <= 80


@pytest.mark.parametrize("target", ["4.worker.1", "4.chief", "4.master", "4.worker"])
def test_a_part_of_a_run_is_selected_by_its_id(home: Path, capsys: Captured, target: str) -> None:
    write_run(home, 4, spec=TWO_WORKERS)
    meant = {"4.worker.1": ["4.worker.1"], "4.worker": ["4.worker.0", "4.worker.1"]}
    found = [replica["id"] for replica in data(capsys, target)["replicas"]]
    assert found == meant.get(target, ["4.worker.0"])


@pytest.mark.parametrize(
    ("target", "code", "message", "hint"),
    [
        ("9", 4, "there is no run 9", "there is run 4"),
        ("7.2", 4, "there is no run 7.2", "there is run 4"),
        ("4.worker.7", 4, "run 4 has no worker.7", "it has 4.worker.0, 4.worker.1"),
        ("4.ps", 4, "run 4 has no ps", "it has 4.worker.0, 4.worker.1"),
        ("4.chef", 2, "`4.chef`: `chef` is not a role", "roles are chief, worker, ps, evaluator"),
        ("four", 2, "`four` is not a run's id", "ids look like 4, 4.worker.1 or 4.chief"),
        ("../4", 2, "`../4` is not a run's id", "ids look like 4, 4.worker.1 or 4.chief"),
    ],
)
def test_an_unknown_id_is_refused_with_the_existing_ids(
    home: Path, capsys: Captured, target: str, code: int, message: str, hint: str
) -> None:
    write_run(home, 4, spec=TWO_WORKERS)
    assert status(target) == code
    assert capsys.readouterr() == ("", f"error: {message}\nhint: {hint}\n")


def test_the_status_of_a_run_without_a_supervisor_names_the_command_that_starts_one(
    home: Path, capsys: Captured
) -> None:
    accepted, started, *_ = moments()
    write_run(home, 4, running(accepted, started), directory=Path.cwd())
    assert status() == 0
    assert "supervisor gone; drumline supervise 4" in capsys.readouterr().out
    assert status("4") == 0
    assert "RUNNING: supervisor gone; drumline supervise 4\n" in capsys.readouterr().out
    assert data(capsys, "4")["supervisor_gone"] is True


def test_watching_a_run_that_is_over_shows_it_once(home: Path, capsys: Captured) -> None:
    write_run(home, 1, finished())
    assert status("1") == 0
    once = capsys.readouterr().out
    assert status("1", "-w") == 0
    assert capsys.readouterr().out == once
