"""If a warm process ends or breaks at any time, replicas start cold: no run fails, and no replica starts twice."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from drumline.engine.local.warm.client import warm_folder
from drumline.engine.local.warm.pool import list_warm_processes
from drumline.run.event import ReplicaStarted
from drumline.run.state import Phase
from drumline.runtime.unix import listen, receive_request
from scaffold.workspace import Run, Workspace

SPEC = f"run: {sys.executable} once.py\nwarm: true\nroles: {{worker: 2}}\n"
SCRIPT = "import os; open(os.environ['HERE'] + '/started', 'a').write(os.environ['DRUMLINE_INDEX'] + '\\n')"
GONE = 1 << 22  # more than any pid


class BrokenWarmProcess:
    """A server that claims to be ready, and answers the first order of each run with these bytes, or not at all."""

    def __init__(self, folder: Path, answer: bytes | None) -> None:
        self._answer = answer
        folder.mkdir(parents=True)
        self._listener = listen(folder / "socket")
        self._child = subprocess.Popen(["sleep", "1000"])  # the process that it claims to be

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(OSError):
                    self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        while True:
            request, descriptors = receive_request(connection, 250)
            for descriptor in descriptors:
                os.close(descriptor)
            if request["do"] == "hello":
                answer = {"pid": self._child.pid, "unfit": "", "changed": "", "names": []}
                connection.sendall(json.dumps(answer).encode() + b"\n")
            elif self._answer is None:
                return
            else:
                connection.sendall(self._answer.replace(b"NAME", json.dumps(request["name"]).encode()) + b"\n")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._child.kill()
        self._child.wait()


@contextmanager
def broken(workspace: Workspace, answer: bytes | None) -> Iterator[None]:
    """Replace the warm process that a run would use by a broken one."""
    first = workspace.train(SPEC)
    first.wait_for(Phase.FINISHED)
    (known,) = list_warm_processes(workspace.home)
    assert workspace.run("warm", "stop").code == 0
    (workspace.project / "started").unlink()
    folder = warm_folder(workspace.home) / known.key
    process = BrokenWarmProcess(folder, answer)
    thread = threading.Thread(target=process.serve)
    thread.start()
    try:
        yield
    finally:
        process.close()
        thread.join()
        shutil.rmtree(folder, ignore_errors=True)


def notes(run: Run) -> set[str]:
    return {event.note for event in run.events if isinstance(event, ReplicaStarted)}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(None, id="it ends before it forks"),
        pytest.param(b'{"name": NAME, "keeper": %d}' % GONE, id="its fork ends at once"),
        pytest.param(b'{"name": "another", "keeper": 5}', id="it names another replica"),
        pytest.param(b'{"name": NAME, "keeper": "x"}', id="it names no process"),
        pytest.param(b"[" * 100, id="it talks nonsense"),
    ],
)
def test_a_replica_that_a_warm_process_does_not_start_is_started_cold_and_once(
    workspace: Workspace, answer: bytes | None
) -> None:
    workspace.write("once.py", SCRIPT)
    with broken(workspace, answer):
        run = workspace.train(SPEC)
        run.wait_for(Phase.FINISHED)
    assert notes(run) == {"cold: the warm process has ended"}
    assert sorted((workspace.project / "started").read_text().split()) == ["0", "1"]


def test_stopping_warm_processes_while_they_fork_fails_no_run(workspace: Workspace) -> None:
    workspace.write("once.py", SCRIPT)
    workspace.write_spec(SPEC)
    for _ in range(8):
        runs = [workspace.command("train", "-d") for _ in range(2)]
        while any(run.poll() is None for run in runs):
            assert workspace.run("warm", "stop").code == 0
        for run in runs:
            out, err = run.communicate()
            assert run.returncode == 0, err
            started = Run(workspace, out.strip())
            while not started.state.phase.is_final:
                assert workspace.run("warm", "stop").code == 0
            started.wait_for(Phase.FINISHED)
    assert len((workspace.project / "started").read_text().split()) == 8 * 2 * 2
