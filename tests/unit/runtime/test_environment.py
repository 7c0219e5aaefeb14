"""Environments: complete, kept and removed ones. No test builds one."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumline.runtime.environment import (
    KEEP_SECONDS,
    MARK,
    NotBuilt,
    folder_of,
    is_ready,
    kept,
    last_used,
    provide,
    remove_unused,
    take_lock,
    use,
)

PYTHON = "/usr/bin/python3.11"


def put(root: Path, name: str = "snare", *, days: float = 0, mark: bool = True) -> str:
    """Create the folder of an environment, complete or without its mark, last used so many days ago."""
    folder = folder_of(str(root), PYTHON, [name])
    (Path(folder) / "bin").mkdir(parents=True)
    (Path(folder) / "bin" / "python").symlink_to(sys.executable)
    if mark:
        (Path(folder) / MARK).write_text("{}")
    lock = Path(f"{folder}.lock")
    lock.touch()
    at = time.time() - days * 86_400
    os.utime(lock, (at, at))
    return folder


@contextmanager
def held(folder: str, how: int) -> Iterator[None]:
    lock = take_lock(folder, how | fcntl.LOCK_NB)
    assert lock is not None
    try:
        yield
    finally:
        os.close(lock)


@pytest.mark.parametrize(
    ("requirements", "name"),
    [
        (["tensorflow-cpu==2.15.1; x", "six"], "tensorflow-cpu"),
        (["--no-index", "Snare[deep]>=2"], "snare"),
        (["drum @ file:///wheels/drum-1.0-py3-none-any.whl#sha256=0"], "drum"),
        (["https://example.org/drum-1.0.zip"], "drum-1.0.zip"),
        (["git+https://example.org/../x"], "x"),
        ([], "python"),
        (["x" * 300], "x" * 40),
    ],
)
def test_a_folder_is_named_after_its_requirements(requirements: list[str], name: str) -> None:
    found = folder_of("/cache", PYTHON, requirements)
    assert found.startswith(f"/cache/{name}-")
    assert len(found) == len(f"/cache/{name}-") + 16


def test_each_property_of_an_environment_changes_its_folder() -> None:
    several = [
        (PYTHON, ["a", "b"]),
        (PYTHON, ["b", "a"]),
        (PYTHON, ["ab"]),
        (PYTHON, ["a"]),
        ("/usr/bin/python3.12", ["a"]),
    ]
    assert len({folder_of("/", python, lines).rpartition("-")[2] for python, lines in several}) == len(several)
    assert folder_of("/", PYTHON, ["a"]) == folder_of("/", PYTHON, ("a",))


def test_an_environment_has_a_mark_and_an_interpreter(tmp_path: Path) -> None:
    assert is_ready(put(tmp_path))
    half = put(tmp_path, "half", mark=False)
    assert not is_ready(half)
    assert use(half) is None
    gone = put(tmp_path, "gone")
    (Path(gone) / "bin" / "python").unlink()
    (Path(gone) / "bin" / "python").symlink_to(tmp_path / "uninstalled")
    assert not is_ready(gone)
    assert use(folder_of(str(tmp_path), PYTHON, ["never"])) is None
    assert len(kept(str(tmp_path))) == 3


def test_an_existing_environment_is_not_built_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = put(tmp_path)
    assert provide(str(tmp_path), PYTHON, ["snare"]) == folder
    assert capfd.readouterr().out == f"drumline: {folder} exists\n"


def test_use_is_recorded_and_prevents_removal(tmp_path: Path) -> None:
    folder = put(tmp_path, days=90)
    lock, another = use(folder), use(folder)
    assert lock is not None
    assert another is not None
    assert time.time() - last_used(folder) < 3600
    os.close(lock)
    assert list(remove_unused(str(tmp_path), 0.0)) == []
    os.close(another)
    assert list(remove_unused(str(tmp_path), 0.0)) == [folder]
    assert list(tmp_path.iterdir()) == []


def test_only_environments_that_were_unused_for_long_are_removed(tmp_path: Path) -> None:
    old, fresh, used = put(tmp_path, "old", days=31), put(tmp_path, "fresh", days=29), put(tmp_path, "used", days=90)
    (tmp_path / "mine").mkdir()
    with held(used, fcntl.LOCK_SH):
        assert list(remove_unused(str(tmp_path), KEEP_SECONDS)) == [old]
    assert sorted(kept(str(tmp_path))) == sorted([fresh, used])
    assert (tmp_path / "mine").exists()


def test_an_incomplete_environment_is_removed_unless_it_is_being_built(tmp_path: Path) -> None:
    left, building = put(tmp_path, "left", mark=False), put(tmp_path, "building", mark=False)
    with held(building, fcntl.LOCK_EX):
        assert list(remove_unused(str(tmp_path), KEEP_SECONDS)) == []
        assert not Path(left).exists()
        assert Path(building).exists()


def test_a_lock_that_was_removed_with_its_folder_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    folder = put(tmp_path)
    before = os.open(f"{folder}.lock", os.O_RDWR)  # opened before it was removed
    assert list(remove_unused(str(tmp_path), 0.0)) == [folder]
    fcntl.flock(before, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with held(folder, fcntl.LOCK_EX):
        assert take_lock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB) is None
    os.close(before)


def test_a_root_that_cannot_be_created_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotBuilt, match=r"cannot build .*: Not a directory"):
        provide(f"{tmp_path}/file/root", PYTHON, ["six"])
    with pytest.raises(NotBuilt, match=r"cannot build .*: No such file or directory"):
        provide(str(tmp_path), f"{tmp_path}/no-python", [])
    assert kept(str(tmp_path)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_an_environment_of_another_user_is_not_used(tmp_path: Path) -> None:
    folder = put(tmp_path)
    for part in (Path(folder), Path(folder, MARK)):
        assert is_ready(folder)
        os.chown(part, 61_234, 61_234)
        assert not is_ready(folder)
        assert use(folder) is None
        os.chown(part, 0, 0)
