"""Drumlines that were carried to a host go when nobody has used them for a month, and no sooner."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from pathlib import Path

import pytest

from drumline.engine.agent.cleanup import UNUSED_SECONDS, remove_unused_packages

OLD, YOUNG = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    for name, age_seconds in ((OLD, UNUSED_SECONDS + 60), (YOUNG, UNUSED_SECONDS - 3600)):
        (tmp_path / name / "lib").mkdir(parents=True)
        (tmp_path / name / "lib/file").touch()
        make_old(tmp_path / name, age_seconds)
    return tmp_path


def make_old(path: Path, age_seconds: float = UNUSED_SECONDS + 60) -> None:
    when = time.time() - age_seconds
    os.utime(path, (when, when))


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_only_what_is_old_goes(shelf: Path) -> None:
    remove_unused_packages(shelf)
    assert names(shelf) == [YOUNG]
    remove_unused_packages(shelf / "nowhere")


def test_what_was_never_finished_goes_as_well_and_nothing_that_is_not_ours(shelf: Path) -> None:
    for name in ("tmpab_12cd", "notes", "0123"):
        (shelf / name).mkdir()
        make_old(shelf / name)
    link, file = shelf / ("e" * 16), shelf / ("f" * 16)
    link.symlink_to(shelf / "notes")
    os.utime(link, (0, 0), follow_symlinks=False)
    file.touch()
    os.utime(file, (0, 0))
    remove_unused_packages(shelf)
    assert names(shelf) == sorted([YOUNG, "notes", "0123", link.name, file.name])


def test_what_somebody_holds_stays_until_it_is_let_go(shelf: Path) -> None:
    held = os.open(shelf / OLD, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    remove_unused_packages(shelf)
    assert names(shelf) == sorted([OLD, YOUNG])
    os.close(held)
    remove_unused_packages(shelf)
    assert names(shelf) == [YOUNG]


def test_what_a_process_imports_from_stays_until_it_ends(shelf: Path) -> None:
    replica = subprocess.Popen(["sleep", "1000"], env={"PYTHONPATH": f"{shelf}/{OLD}/runtime"})
    try:
        remove_unused_packages(shelf)
        assert names(shelf) == sorted([OLD, YOUNG])
    finally:
        replica.kill()
        replica.wait()
    remove_unused_packages(shelf)
    assert names(shelf) == [YOUNG]
