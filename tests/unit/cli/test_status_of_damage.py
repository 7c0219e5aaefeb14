"""`drumline status` of damaged runs, and of names that are not valid text."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from drumline.cli import run as run_command
from drumline.run.event import Exit, ReplicaExited
from scaffold.past_runs import NOON, ONE_WORKER, WORKER, append, finished, moments, running, write_run
from scaffold.status_output import Captured, cells, data, status


def remove(path: Path) -> None:
    path.unlink()


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 5000)


def change_schema(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("ALTER TABLE runs DROP COLUMN phase")


@pytest.mark.parametrize("damage", [remove, make_folder, truncate, fill_with_garbage, change_schema])
def test_a_damaged_index_does_not_change_the_list(home: Path, capsys: Captured, damage: Callable[[Path], None]) -> None:
    for number in range(1, 6):
        write_run(home, number, finished(code=number % 2), directory=Path.cwd())
    before = data(capsys)
    assert len(before) == 5
    damage(home / "index.sqlite")
    for _ in range(2):
        assert data(capsys) == before


def test_a_truncated_journal_is_read_up_to_its_last_complete_line(home: Path, capsys: Captured) -> None:
    folder = write_run(home, 4, finished(), directory=Path.cwd())
    assert [run["state"] for run in data(capsys)] == ["FINISHED"]
    folder.journal_file.write_bytes(folder.journal_file.read_bytes()[:-7])
    assert [run["state"] for run in data(capsys)] == ["RUNNING"]
    assert data(capsys, "4")["replicas"][0]["state"] == "RUNNING"


def test_a_clock_set_back_gives_no_negative_times(home: Path, capsys: Captured) -> None:
    tomorrow = 4_000_000_000.0
    accepted, started, _, ended = moments(at=tomorrow)
    set_back = ended.replace(at=NOON)
    write_run(home, 4, running(accepted, started), directory=Path.cwd(), at=tomorrow)
    append(write_run(home, 5, running(accepted, started), directory=Path.cwd(), at=tomorrow), [])
    append(
        write_run(home, 6, running(accepted, started), directory=Path.cwd(), at=tomorrow),
        [(set_back, ReplicaExited(WORKER, 0, 0, Exit(0), ended.since_boot))],
    )
    assert status() == 0
    assert "-" not in "".join(cell for row in cells(capsys.readouterr().out) for cell in row[3:5])
    assert data(capsys, "6")["duration_seconds"] == 20.0
    assert all(run["duration_seconds"] >= 0 for run in data(capsys))


def test_a_home_that_cannot_be_read_is_reported_in_one_sentence(home: Path, capsys: Captured) -> None:
    home.mkdir()
    (home / "runs").write_text("not a folder")
    for words in ((), ("-a",), ("4",)):
        assert status(*words) == 3
        out, err = capsys.readouterr()
        assert (out, err.splitlines()[0]) == ("", f"error: cannot read the runs in {home}: Not a directory")


def test_a_run_that_cannot_be_read_is_listed_beside_the_others(home: Path, capsys: Captured) -> None:
    write_run(home, 1, finished(), directory=Path.cwd())
    for number in (2, 3):
        write_run(home, number, finished(), directory=Path.cwd()).plan_file.write_text("{}")
    assert status() == 0
    out, err = capsys.readouterr()
    assert [row[0] for row in cells(out)] == ["1"]
    assert err.startswith("warning: the plan of run 3 cannot be read: ")
    assert err.endswith(", and 1 more run\n")
    assert status("3") == 3


def test_a_deleted_working_directory_is_reported_in_one_sentence(home: Path, capsys: Captured) -> None:
    write_run(home, 1, finished(), directory=Path.cwd())
    shutil.rmtree(Path.cwd())
    assert status() == 2
    assert "error: the current folder has been deleted" in capsys.readouterr().err
    assert [run["id"] for run in data(capsys, "-a")] == ["1"]


def test_control_characters_are_escaped(home: Path, capsys: Captured) -> None:
    write_run(home, 1, finished(), spec=f'{ONE_WORKER}\nparameters: {{bell: "\\a\\e[2J"}}', directory="/a\x1b[31mb")
    assert status("1") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\a" not in out
    assert "/a\\x1b[31mb" in out


def test_a_project_with_a_name_that_is_not_utf_8_can_be_shown(home: Path, capsys: Captured) -> None:
    write_run(home, 1, finished(), directory=os.fsdecode(b"/caf\xe9"), spec=f"{ONE_WORKER}\noutput: out")
    assert status("1") == 0
    assert "Output:     /caf\\udce9/out\n" in capsys.readouterr().out
    assert os.fsencode(data(capsys, "1")["output_dir"]) == b"/caf\xe9/out"


@pytest.mark.parametrize(
    "line",
    [
        '{"v": 1, "at": "x", "up": 1, "boot": "b", "event": "SupervisorReturned"}',
        '{"v": 1, "at": 1, "up": NaN, "boot": "b", "event": "SupervisorReturned"}',
        '{"v": 1, "at": 1, "up": 1, "boot": [], "event": "SupervisorReturned"}',
        f'{{"v": 1, "at": {10**400}, "up": 1, "boot": "b", "event": "SupervisorReturned"}}',
        f'{{"v": 1, "at": 1, "up": 1, "boot": "b", "event": "StopRequested", "at_seconds": {10**400}}}',
        '{"v": 1, "at": 1, "up": 1, "boot": "b", "event": "FromAnotherVersion"}',
        '{"v": 2}',
    ],
    ids=lambda line: line[8:60],
)
def test_an_invalid_line_of_the_journal_is_skipped(home: Path, capsys: Captured, line: str) -> None:
    folder = write_run(home, 4, finished(), directory=Path.cwd())
    folder.journal_file.write_bytes(folder.journal_file.read_bytes() + f"{line}\n".encode())
    assert [run["state"] for run in data(capsys)] == ["FINISHED"]
    for words in (("events", "4"), ("status", "4")):
        assert run_command([*words]) == 0


@pytest.mark.parametrize("facts", ["[]", '{"directory": 5, "at": "x"}', '{"at": []}', '{"at": NaN}', "[" * 99999])
def test_facts_of_a_launch_that_cannot_be_read_are_ignored(home: Path, capsys: Captured, facts: str) -> None:
    write_run(home, 4, finished(), directory=Path.cwd()).facts_file.write_text(facts)
    assert data(capsys, "4")["state"] == "FINISHED"
    assert [run["id"] for run in data(capsys, "-a")] == ["4"]


def test_stacks_that_are_not_a_file_are_not_shown(home: Path, capsys: Captured) -> None:
    folder = write_run(home, 4, finished(), directory=Path.cwd())
    stacks = folder.path / "attempts" / "0" / "worker.0" / "stacks"
    stacks.mkdir(parents=True)
    assert run_command(["stacks", "4"]) == 4
    assert capsys.readouterr().err.startswith("error: there are no stack traces of 4\n")
