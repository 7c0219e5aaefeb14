"""What belongs to a project, and what is read of it while somebody writes."""

from __future__ import annotations

import os
from pathlib import Path

from drumline.engine.project.tree import Entry, read_file, walk_project


def test_what_is_never_carried(tmp_path: Path) -> None:
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


def test_a_file_that_changes_while_it_is_packed_is_carried_as_it_was_at_one_moment(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n")
    changes = 0

    def look(descriptor: int) -> os.stat_result:
        """Somebody writes between every two looks, for a while."""
        nonlocal changes
        if changes:
            changes -= 1
            with log.open("ab") as file:
                file.write(b"more\n")
        return os.fstat(descriptor)

    changes = 100
    assert read_file(tmp_path, Entry("log", "file"), look) == (b"first\n" + 5 * b"more\n", False)
    log.write_bytes(b"first\n")
    changes = 3
    assert read_file(tmp_path, Entry("log", "file"), look) == (b"first\n" + 3 * b"more\n", True)


def test_a_file_that_is_gone_by_then_is_not_missed(tmp_path: Path) -> None:
    assert read_file(tmp_path, Entry("gone", "file")) is None
    os.mkfifo(tmp_path / "pipe")
    assert read_file(tmp_path, Entry("pipe", "file")) is None
