"""Packages of drumline on a host are removed after a month without use, and not before."""

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
def packages(tmp_path: Path) -> Path:
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


def test_only_old_copies_are_removed(packages: Path) -> None:
    remove_unused_packages(packages)
    assert names(packages) == [YOUNG]
    remove_unused_packages(packages / "nowhere")


def test_incomplete_copies_are_removed_and_foreign_files_are_not(packages: Path) -> None:
    for name in ("tmpab_12cd", "notes", "0123"):
        (packages / name).mkdir()
        make_old(packages / name)
    link, file = packages / ("e" * 16), packages / ("f" * 16)
    link.symlink_to(packages / "notes")
    os.utime(link, (0, 0), follow_symlinks=False)
    file.touch()
    os.utime(file, (0, 0))
    remove_unused_packages(packages)
    assert names(packages) == sorted([YOUNG, "notes", "0123", link.name, file.name])


def test_a_locked_copy_stays_until_it_is_unlocked(packages: Path) -> None:
    held = os.open(packages / OLD, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    remove_unused_packages(packages)
    assert names(packages) == sorted([OLD, YOUNG])
    os.close(held)
    remove_unused_packages(packages)
    assert names(packages) == [YOUNG]


def test_a_copy_that_a_process_imports_from_stays_until_the_process_ends(packages: Path) -> None:
    replica = subprocess.Popen(["sleep", "1000"], env={"PYTHONPATH": f"{packages}/{OLD}/runtime"})
    try:
        remove_unused_packages(packages)
        assert names(packages) == sorted([OLD, YOUNG])
    finally:
        replica.kill()
        replica.wait()
    remove_unused_packages(packages)
    assert names(packages) == [YOUNG]
