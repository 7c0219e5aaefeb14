"""Runs as rows, whatever state the index is in."""

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


def test_runs_come_newest_first(tmp_path: Path) -> None:
    for number in (2, 10, 9):
        write_run(tmp_path, number, finished(code=number % 2))
    assert listed(recent_runs(tmp_path, NOW)) == [("10", "FINISHED"), ("9", "FAILED"), ("2", "FINISHED")]


def test_the_second_time_they_come_from_the_index_and_are_the_same(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_run(tmp_path, number, finished())
    first = recent_runs(tmp_path, NOW)
    assert indexed(tmp_path) == {"1", "2", "3"}
    assert recent_runs(tmp_path, NOW) == first


def test_only_as_many_as_asked_for_and_whether_there_are_more(tmp_path: Path) -> None:
    for number in range(1, 6):
        write_run(tmp_path, number, finished())
    for _ in range(2):  # from folders, then from the index
        some = recent_runs(tmp_path, NOW, limit=2)
        assert ([row.summary.id for row in some.runs], some.has_more) == (["5", "4"], True)
        every = recent_runs(tmp_path, NOW, limit=5)
        assert (len(every.runs), every.has_more) == (5, False)


def test_a_project_sees_its_own_runs(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_run(tmp_path, 1, finished(), directory=ours)
    write_run(tmp_path, 2, finished(), directory=theirs)
    write_run(tmp_path, 3, finished(), directory=ours)
    for _ in range(2):
        assert [run for run, _ in listed(recent_runs(tmp_path, NOW, directory=str(ours)))] == ["3", "1"]


def test_no_home_has_no_runs_and_gets_no_index(tmp_path: Path) -> None:
    home = tmp_path / "nowhere"
    assert recent_runs(home, NOW) == Listing((), has_more=False, problems=())
    assert not home.exists()


def test_a_home_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    with pytest.raises(EngineError, match="cannot read the runs in"):
        recent_runs(tmp_path, NOW)


def test_a_run_that_went_on_since_is_read_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 1, finished()[:-1])
    assert listed(recent_runs(tmp_path, NOW)) == [("1", "RUNNING")]
    append(folder, finished()[-1:])
    assert listed(recent_runs(tmp_path, NOW)) == [("1", "FINISHED")]
    assert use_index(tmp_path, lambda index: [row.phase for row in index.rows()]) == ["FINISHED"]


def test_a_run_that_was_never_recorded_is_found_among_those_that_were(tmp_path: Path) -> None:
    for number in (1, 3):
        write_run(tmp_path, number, finished())
    recent_runs(tmp_path, NOW)
    write_run(tmp_path, 2, finished())
    assert [run for run, _ in listed(recent_runs(tmp_path, NOW))] == ["3", "2", "1"]


def test_a_run_without_its_folder_is_gone(tmp_path: Path) -> None:
    for number in (1, 2):
        write_run(tmp_path, number, finished())
    recent_runs(tmp_path, NOW)
    shutil.rmtree(tmp_path / "runs" / "1")
    assert [run for run, _ in listed(recent_runs(tmp_path, NOW))] == ["2"]
    assert indexed(tmp_path) == {"2"}


def test_a_number_that_begins_anew_does_not_show_what_had_it_before(tmp_path: Path) -> None:
    write_run(tmp_path, 1, finished(), directory=tmp_path / "before")
    recent_runs(tmp_path, NOW)
    shutil.rmtree(tmp_path / "runs")
    accepted, started, *_ = moments()
    write_run(tmp_path, 1, running(accepted, started), directory=tmp_path / "after")
    assert listed(recent_runs(tmp_path, NOW, directory=str(tmp_path / "before"))) == []
    assert listed(recent_runs(tmp_path, NOW, directory=str(tmp_path / "after"))) == [("1", "RUNNING")]


def test_a_folder_without_a_plan_is_no_run(tmp_path: Path) -> None:
    write_run(tmp_path, 1, finished())
    (tmp_path / "runs" / "2").mkdir()
    (tmp_path / "runs" / "notes").mkdir()
    assert listed(recent_runs(tmp_path, NOW)) == [("1", "FINISHED")]


def test_a_run_that_cannot_be_read_is_named_and_hides_no_other(tmp_path: Path) -> None:
    write_run(tmp_path, 1, finished())
    write_run(tmp_path, 2, finished()).plan_file.write_text("{")
    listing = recent_runs(tmp_path, NOW)
    assert listed(listing) == [("1", "FINISHED")]
    assert [problem.partition(":")[0] for problem in listing.problems] == ["the plan of run 2 cannot be read"]


@pytest.mark.parametrize("damage", [b"", b"garbage" * 999, None], ids=["empty", "garbage", "a folder"])
def test_without_a_good_index_the_folders_are_read(tmp_path: Path, damage: bytes | None) -> None:
    for number in (1, 2, 3):
        write_run(tmp_path, number, finished())
    good = recent_runs(tmp_path, NOW, limit=2)
    index = tmp_path / "index.sqlite"
    index.unlink()
    index.mkdir() if damage is None else index.write_bytes(damage)
    assert recent_runs(tmp_path, NOW, limit=2) == good


def test_a_row_that_says_something_else_than_the_journal_is_not_believed(tmp_path: Path) -> None:
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


def test_a_run_that_goes_on_counts_by_the_clock_that_never_goes_back(tmp_path: Path) -> None:
    accepted, started, *_ = moments()
    write_run(tmp_path, 1, running(accepted, started))
    set_back = Moment(NOON - 86_400, started.since_boot + 60, "boot-a")
    for _ in range(2):
        assert recent_runs(tmp_path, set_back).runs[0].duration_seconds == 60.0


def test_a_run_of_another_boot_counts_by_the_clock_on_the_wall(tmp_path: Path) -> None:
    accepted, started, *_ = moments()
    write_run(tmp_path, 1, running(accepted, started))
    later = Moment(started.at + 3600, 5.0, "boot-b")
    assert recent_runs(tmp_path, later).runs[0].duration_seconds == 3600.0


def test_a_finished_run_counts_no_further(tmp_path: Path) -> None:
    write_run(tmp_path, 1, finished())
    assert recent_runs(tmp_path, Moment(NOON + 9999, 9999.0, "boot-a")).runs[0].duration_seconds == 20.0


def test_a_run_that_goes_on_without_its_lock_held_has_lost_its_supervisor(tmp_path: Path) -> None:
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
