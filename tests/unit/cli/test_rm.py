"""`drumline rm` of runs written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.cli import run
from drumline.store.folder import create_folder
from drumline.store.index import Index, use_index
from drumline.store.summary import record_run
from past import finished, moments, running, write_run

Captured = pytest.CaptureFixture[str]


def rm(*ids: str) -> int:
    return run(["rm", *ids])


def left(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "runs").iterdir())


def test_a_finished_run_is_forgotten_with_all_its_files(home: Path, capsys: Captured) -> None:
    for number in (1, 2):
        folder = write_run(home, number, finished())
        (folder.path / "attempts" / "0" / "worker.0").mkdir(parents=True)
        (folder.path / "attempts" / "0" / "worker.0" / "log").write_text("hello\n")
        folder.output_dir.mkdir()
        record_run(folder)
    assert rm("1") == 0
    assert capsys.readouterr() == ("removed run 1\n", "")
    assert left(home) == ["2"]
    assert use_index(home, Index.ids) == {"2"}


def test_several_runs_are_forgotten_and_an_id_may_be_said_twice(home: Path, capsys: Captured) -> None:
    for number in (1, 2, 3):
        write_run(home, number, finished(code=number % 2))
    assert rm("3", "1", "3") == 0
    assert capsys.readouterr().out == "removed run 3\nremoved run 1\n"
    assert left(home) == ["2"]


def test_a_run_that_is_not_over_is_kept_and_so_are_all_others(home: Path, capsys: Captured) -> None:
    accepted, started, *_ = moments()
    write_run(home, 1, finished())
    write_run(home, 2, running(accepted, started))
    assert rm("1", "2") == 2
    assert capsys.readouterr() == ("", "error: run 2 is not over: RUNNING\nhint: `drumline kill 2` ends it\n")
    assert left(home) == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("7", 4, "error: there is no run 7"),
        ("1.worker.0", 2, "error: 1.worker.0: only whole runs can be removed"),
        ("all", 2, "error: `all` is not a run's id"),
    ],
)
def test_all_ids_are_checked_before_anything_is_removed(
    home: Path, capsys: Captured, text: str, code: int, message: str
) -> None:
    write_run(home, 1, finished())
    assert rm("1", text) == code
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", message)
    assert left(home) == ["1"]


def test_an_output_that_the_spec_names_is_left_alone(home: Path, tmp_path: Path, capsys: Captured) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / "model").write_text("weights")
    write_run(home, 1, finished(), spec="framework: plain\noutput: results", directory=tmp_path)
    assert rm("1") == 0
    assert capsys.readouterr() == ("removed run 1\n", f"its output stays in {results}\n")
    assert (results / "model").read_text() == "weights"


def test_a_link_in_a_runs_folder_leads_nowhere(home: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "model").write_text("weights")
    folder = write_run(home, 1, finished())
    folder.output_dir.symlink_to(precious)
    assert rm("1") == 0
    assert (precious / "model").read_text() == "weights"


def test_a_run_that_never_began_can_be_removed(home: Path) -> None:
    write_run(home, 1)
    assert rm("1") == 0
    assert left(home) == []


def test_the_number_of_a_removed_run_is_not_given_again(home: Path) -> None:
    last = create_folder(home)
    write_run(home, 2, finished())
    last.path.rmdir()
    assert create_folder(home).id == "3"
    assert rm("2") == 0
    assert create_folder(home).id == "4"


def test_a_removed_run_is_not_there_any_more(home: Path, capsys: Captured) -> None:
    write_run(home, 1, finished())
    assert rm("1") == 0
    assert run(["status", "1"]) == 4
    assert "hint: there are no runs yet" in capsys.readouterr().err


def test_an_index_that_cannot_be_used_keeps_nobody_from_removing(home: Path) -> None:
    write_run(home, 1, finished())
    (home / "index.sqlite").mkdir()
    assert rm("1") == 0
    assert left(home) == []
