"""Child processes with a new interpreter: their modules, arguments, descriptors, session and threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.runtime.child import start_python

SHOW = """
import json, os, sys
def main(*words):
    print(json.dumps({
        "words": words,
        "given": sys.stdin.read(),
        "session": os.getsid(0) == os.getpid(),
        "threads": len(os.listdir("/proc/self/task")),
        "open": [each for each in range(3, 1000) if os.path.exists(f"/proc/self/fd/{each}")],
        "python": sys.executable,
        "utf8": sys.flags.utf8_mode,
    }))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module that prints the state of its process, and that child processes can import."""
    (tmp_path / "shown_by_a_child.py").write_text(SHOW)
    monkeypatch.syspath_prepend(tmp_path)
    return "shown_by_a_child"


def run(module: str, *words: str, descriptors: tuple[int, ...] = ()) -> dict[str, object]:
    child = start_python(module, *words, descriptors=descriptors, stdout=subprocess.PIPE)
    said: dict[str, object] = json.loads(child.communicate()[0])
    return said


def test_a_child_has_its_arguments_and_only_the_listed_descriptors(module: str) -> None:
    read, write = os.pipe()
    try:
        said = run(module, "ä", "b c", descriptors=(read,))
    finally:
        os.close(read)
        os.close(write)
    assert said["words"] == ["ä", "b c"]
    assert said["open"] == [read]


def test_a_child_runs_this_interpreter_in_its_own_session_with_one_thread(module: str) -> None:
    said = run(module)
    assert (said["given"], said["session"], said["threads"]) == ("", True, 1)
    assert (said["python"], said["utf8"]) == (sys.executable, sys.flags.utf8_mode)
