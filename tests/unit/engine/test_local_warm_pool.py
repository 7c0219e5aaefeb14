"""The list of warm processes, including those of older versions."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from drumline.engine.local.warm import pool as warm_pool
from drumline.engine.local.warm.client import warm_folder
from drumline.engine.local.warm.pool import list_warm_processes, stop_warm_processes
from drumline.runtime.unix import receive_request


def test_warm_processes_of_an_older_drumline_are_listed_too(tmp_path: Path) -> None:
    folder = warm_folder(tmp_path) / "0123456789abcdef"
    folder.mkdir(parents=True)
    said = {"pid": 1, "framework": "torch", "python": "/bin/python", "began": 2.0}
    said |= {"replicas": 3, "runs": 0, "keep": 600.0, "unfit": ""}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()

        def answer() -> None:
            with listener.accept()[0] as connection:
                receive_request(connection, 0)  # all of it: closing with unread data would discard the answer
                connection.sendall(json.dumps(said).encode() + b"\n")

        thread = threading.Thread(target=answer)
        thread.start()
        (known,) = list_warm_processes(tmp_path)
        thread.join()
    assert (known.key, known.framework, known.modules, known.replicas) == (folder.name, "torch", (), 3)


# Listens in a folder as a supervisor does that has just begun a warm process there.
BEGINNER = """
import os, socket, sys
os.chdir(sys.stdin.readline().strip())
listener = socket.socket(socket.AF_UNIX)
listener.bind("socket")
listener.listen()
print("listens", flush=True)
sys.stdin.read()
"""


def test_a_supervisor_that_is_starting_a_warm_process_is_not_listed_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_pool, "_ANSWER_SECONDS", 0.1)
    folder = warm_folder(tmp_path) / "0123456789abcdef"
    folder.mkdir(parents=True)
    argv = [sys.executable, "-c", BEGINNER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as beginner:
        assert beginner.stdin
        assert beginner.stdout
        beginner.stdin.write(f"{folder}\n")
        beginner.stdin.flush()
        assert beginner.stdout.readline() == "listens\n"
        assert list(list_warm_processes(tmp_path)) == []
        assert stop_warm_processes(tmp_path) == 0
        assert beginner.poll() is None
