"""Listings of runs, with a usable and an unusable index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.errors import EngineError
from drumline.runtime.lock import take_lock
from drumline.store.clock import Moment
from drumline.store.index import Index, use_index
from drumline.view.runs import Listing, recent_runs
from scaffold.past_runs import NOON, NOW, append, finished, moments, running, summary_of, write_run


def listed(listing: Listing) -> list[tuple[str, str]]:
    return [(row.summary.id, row.summary.phase) for row in listing.runs]


def indexed(home: Path) -> set[str]:
    return use_index(home, Index.ids)


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    for number in (2, 10, 9):
        write_run(tmp_path, number, finished(code=number % 2))
    assert listed(recent_runs(tmp_path, NOW)) == [("10", "FINISHED"), ("9", "FAILED"), ("2", "FINISHED")]


def test_a_second_listing_is_read_from_the_index_and_is_the_same(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_run(tmp_path, number, finished())
    first = recent_runs(tmp_path, NOW)
    assert indexed(tmp_path) == {"1", "2", "3"}
    assert recent_runs(tmp_path, NOW) == first


def test_a_listing_has_at_most_the_limit_of_runs_and_whether_there_are_more(tmp_path: Path) -> None:
    for number in range(1, 6):
        write_run(tmp_path, number, finished())
    for _ in range(2):  # from folders, then from the index
        some = recent_runs(tmp_path, NOW, limit=2)
        assert ([row.summary.id for row in some.runs], some.has_more) == (["5", "4"], True)
        every = recent_runs(tmp_path, NOW, limit=5)
        assert (len(every.runs), every.has_more) == (5, False)


def test_the_listing_of_a_project_has_only_its_runs(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_run(tmp_path, 1, finished(), directory=ours)
    write_run(tmp_path, 2, finished(), directory=theirs)
    write_run(tmp_path, 3, finished(), directory=ours)
    for _ in range(2):
        assert [run for run, _ in listed(recent_runs(tmp_path, NOW, directory=str(ours)))] == ["3", "1"]


def test_a_missing_home_has_no_runs_and_is_not_created(tmp_path: Path) -> None:
    home = tmp_path / "nowhere"
    assert recent_runs(home, NOW) == Listing((), has_more=False, problems=())
    assert not home.exists()


def test_a_home_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    with pytest.raises(EngineError, match="cannot read the runs in"):
        recent_runs(tmp_path, NOW)


def test_a_run_with_a_changed_journal_is_read_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 1, finished()[:-1])
    assert listed(recent_runs(tmp_path, NOW)) == [("1", "RUNNING")]
    append(folder, finished()[-1:])
    assert listed(recent_runs(tmp_path, NOW)) == [("1", "FINISHED")]
    assert use_index(tmp_path, lambda index: [row.phase for row in index.rows()]) == ["FINISHED"]


def test_a_run_without_a_row_is_listed_among_the_others(tmp_path: Path) -> None:
    for number in (1, 3):
        write_run(tmp_path, number, finished())
    recent_runs(tmp_path, NOW)
    write_run(tmp_path, 2, finished())
    assert [run for run, _ in listed(recent_runs(tmp_path, NOW))] == ["3", "2", "1"]


def test_a_run_without_a_folder_is_removed_from_the_index(tmp_path: Path) -> None:
    for number in (1, 2):
        write_run(tmp_path, number, finished())
    recent_runs(tmp_path, NOW)
    shutil.rmtree(tmp_path / "runs" / "1")
    assert [run for run, _ in listed(recent_runs(tmp_path, NOW))] == ["2"]
    assert indexed(tmp_path) == {"2"}


def test_a_new_run_with_the_number_of_a_removed_run_replaces_its_row(tmp_path: Path) -> None:
    write_run(tmp_path, 1, finished(), directory=tmp_path / "before")
    recent_runs(tmp_path, NOW)
    shutil.rmtree(tmp_path / "runs")
    accepted, started, *_ = moments()
    write_run(tmp_path, 1, running(accepted, started), directory=tmp_path / "after")
    assert listed(recent_runs(tmp_path, NOW, directory=str(tmp_path / "before"))) == []
    assert listed(recent_runs(tmp_path, NOW, directory=str(tmp_path / "after"))) == [("1", "RUNNING")]


def test_a_folder_without_a_plan_is_not_listed(tmp_path: Path) -> None:
    write_run(tmp_path, 1, finished())
    (tmp_path / "runs" / "2").mkdir()
    (tmp_path / "runs" / "notes").mkdir()
    assert listed(recent_runs(tmp_path, NOW)) == [("1", "FINISHED")]


def test_a_run_that_cannot_be_read_is_a_problem_and_the_others_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path, 1, finished())
    write_run(tmp_path, 2, finished()).plan_file.write_text("{")
    listing = recent_runs(tmp_path, NOW)
    assert listed(listing) == [("1", "FINISHED")]
    assert [problem.partition(":")[0] for problem in listing.problems] == ["the plan of run 2 cannot be read"]


@pytest.mark.parametrize("damage", [b"", b"garbage" * 999, None], ids=["empty", "garbage", "a folder"])
def test_with_a_damaged_index_the_folders_are_read(tmp_path: Path, damage: bytes | None) -> None:
    for number in (1, 2, 3):
        write_run(tmp_path, number, finished())
    good = recent_runs(tmp_path, NOW, limit=2)
    index = tmp_path / "index.sqlite"
    index.unlink()
    index.mkdir() if damage is None else index.write_bytes(damage)
    assert recent_runs(tmp_path, NOW, limit=2) == good


def test_a_row_that_contradicts_the_journal_is_not_used(tmp_path: Path) -> None:
    write_run(tmp_path, 1, finished(), directory="/project")
    use_index(tmp_path, lambda index: index.put([summary_of(1, phase="KILLED")]))
    assert listed(recent_runs(tmp_path, NOW)) == [("1", "FINISHED")]


def test_a_python_without_sqlite_reads_the_folders(tmp_path: Path) -> None:
    write_run(tmp_path, 1, finished())
    program = (
        "import sys; sys.modules['_sqlite3'] = None\n"
        "from pathlib import Path\n"
        "from drumline.view.runs import recent_runs\n"
        "from drumline.store.clock import read_clock\n"
        "print([row.summary.phase for row in recent_runs(Path(sys.argv[1]), read_clock()).runs])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("['FINISHED']\n", "")


def test_the_duration_of_a_running_run_is_measured_with_the_monotonic_clock(tmp_path: Path) -> None:
    accepted, started, *_ = moments()
    write_run(tmp_path, 1, running(accepted, started))
    set_back = Moment(NOON - 86_400, started.since_boot + 60, "boot-a")
    for _ in range(2):
        assert recent_runs(tmp_path, set_back).runs[0].duration_seconds == 60.0


def test_the_duration_of_a_run_of_another_boot_is_measured_with_the_wall_clock(tmp_path: Path) -> None:
    accepted, started, *_ = moments()
    write_run(tmp_path, 1, running(accepted, started))
    later = Moment(started.at + 3600, 5.0, "boot-b")
    assert recent_runs(tmp_path, later).runs[0].duration_seconds == 3600.0


def test_the_duration_of_a_finished_run_does_not_grow(tmp_path: Path) -> None:
    write_run(tmp_path, 1, finished())
    assert recent_runs(tmp_path, Moment(NOON + 9999, 9999.0, "boot-a")).runs[0].duration_seconds == 20.0


def test_a_running_run_without_a_held_lock_has_lost_its_supervisor(tmp_path: Path) -> None:
    accepted, started, *_ = moments()
    folder = write_run(tmp_path, 1, running(accepted, started))
    for _ in range(2):
        assert recent_runs(tmp_path, NOW).runs[0].supervisor_gone
    lock = take_lock(folder.lock_file)
    assert lock is not None
    try:
        for _ in range(2):
            assert not recent_runs(tmp_path, NOW).runs[0].supervisor_gone
    finally:
        os.close(lock)


def test_a_finished_run_needs_no_supervisor(tmp_path: Path) -> None:
    write_run(tmp_path, 1, finished())
    for _ in range(2):
        assert not recent_runs(tmp_path, NOW).runs[0].supervisor_gone
