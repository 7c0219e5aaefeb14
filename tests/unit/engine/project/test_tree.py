"""The files of a project, also while they are written."""

from __future__ import annotations

import os
from pathlib import Path

from drumline.engine.project.tree import Entry, read_file, walk_project


def test_some_folders_are_never_part_of_a_project(tmp_path: Path) -> None:
    for name in (
        ".git/HEAD",
        "lib/.git",
        ".venv/bin/python",
        "env/pyvenv.cfg",
        "src/__pycache__/x.pyc",
        "output/model",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    found = {entry.path for entry in walk_project(tmp_path, without=[tmp_path / "output"]).entries}
    assert not {name.partition("/")[0] for name in found} & {".git", ".venv", "env", "output"}
    assert not [name for name in found if name.endswith((".git", "__pycache__"))]
    assert "lib" in found


def test_a_file_that_changes_while_it_is_packed_is_read_in_one_consistent_state(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n")
    changes = 0

    def stat(descriptor: int) -> os.stat_result:
        """Append to the file before each of the next `changes` calls, then return its status."""
        nonlocal changes
        if changes:
            changes -= 1
            with log.open("ab") as file:
                file.write(b"more\n")
        return os.fstat(descriptor)

    changes = 100
    assert read_file(tmp_path, Entry("log", "file"), stat) == (b"first\n" + 5 * b"more\n", False)
    log.write_bytes(b"first\n")
    changes = 3
    assert read_file(tmp_path, Entry("log", "file"), stat) == (b"first\n" + 3 * b"more\n", True)


def test_a_file_that_was_removed_meanwhile_is_no_error(tmp_path: Path) -> None:
    assert read_file(tmp_path, Entry("gone", "file")) is None
    os.mkfifo(tmp_path / "pipe")
    assert read_file(tmp_path, Entry("pipe", "file")) is None
