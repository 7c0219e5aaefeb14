"""Replicas that connect to each other, for tests of networks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

PRIVATE = "engine: {local: {network: private}}"

# Every replica serves its run's number on the port of its own address, connects to every other replica until all have
# answered, prints the answers, and continues to serve until the file `go-RUN-ATTEMPT` exists.
PEER = """
import json, os, socket, threading, time
from pathlib import Path
config = json.loads(os.environ["TF_CONFIG"])
here, run, attempt = Path(os.environ["HERE"]), os.environ["DRUMLINE_RUN"], os.environ["DRUMLINE_ATTEMPT"]
index = config["task"]["index"]
host, _, port = config["cluster"]["worker"][index].rpartition(":")
server = socket.create_server(("", int(port)))
def serve():
    while True:
        client, _ = server.accept()
        client.sendall(run.encode())
        client.close()
threading.Thread(target=serve, daemon=True).start()
def greet(address):
    host, _, port = address.rpartition(":")
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=30) as client:
                return client.recv(64).decode()
        except ConnectionRefusedError:
            time.sleep(0.01)  # its host exists, but it does not listen yet
greeted = {address: greet(address) for address in config["cluster"]["worker"]}
print(json.dumps({"host": socket.gethostname(), "uid": os.getuid(), "greeted": greeted}), flush=True)
(here / f"met-{run}-{attempt}-{index}").touch()
while not (here / f"go-{run}-{attempt}").exists():
    time.sleep(0.01)
raise SystemExit(int((here / f"go-{run}-{attempt}").read_text()))
"""


def peers(
    workspace: Workspace,
    *,
    port: int = 2222,
    workers: int = 2,
    network: str = PRIVATE,
    more: str = "",
    python: str = "",
) -> Run:
    """Start a run in which each replica connects to all others; with `python`, the scripts import TensorFlow."""
    workspace.write("peer.py", f"import tensorflow\n{PEER}" if python else PEER)
    run = workspace.train(f"""
framework: tensorflow
run: {{argv: [{python or python_for(workspace)}, peer.py]}}
port: {port}
roles: {{worker: {workers}}}
timeouts: {{grace: 1}}
{network}
{more}
""")
    wait_met(run, workers)
    return run


def python_for(workspace: Workspace) -> str:
    """Return a Python that the user of this workspace may run; that of the tests may be private to its owner."""
    for python in (sys.executable, "/usr/bin/python3"):
        if (
            subprocess.run(
                [*workspace.command_prefix, "sh", "-c", f"{python} -c ''"], capture_output=True, check=False
            ).returncode
            == 0
        ):
            return python
    pytest.skip("no Python that every user may run")


def wait_met(run: Run, workers: int, attempt: int = 0) -> None:
    def has_met() -> bool:
        assert not run.state.phase.is_final, [run.log(f"worker.{index}", attempt) for index in range(workers)]
        return all(run.workspace.exists(f"met-{run.id}-{attempt}-{index}") for index in range(workers))

    wait_until(has_met)


def end(run: Run, attempt: int = 0, code: int = 0) -> None:
    part = run.workspace.write(f"go-{run.id}-{attempt}.part", str(code))
    part.rename(part.with_suffix(""))
