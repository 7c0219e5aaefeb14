"""Replicas that restart separately keep their address."""

from __future__ import annotations

import os
import signal

import pytest

from drumline.engine.ports import claim_port
from drumline.run.event import AttemptPlaced
from drumline.run.state import Phase
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

# A gang that prints a step at once, and continues until the test ends it.
GANG = """
framework: tensorflow
warm: false
roles:
  chief: {run: "echo step 1: loss 0.5; until [ -e go ]; do sleep 0.05; done"}
  worker: {replicas: 2, run: "echo $TF_CONFIG; exec sleep 1000"}
  ps: {run: exec sleep 1000}
timeouts: {grace: 1}
"""


def start(workspace: Workspace, more: str) -> Run:
    run = workspace.train(GANG + more)
    run.wait_started()
    wait_until(lambda: run.state.stepped)
    return run


def kill(run: Run, replica: str, incarnation: int = 0) -> None:
    wait_until(lambda: run.trace(replica, 0, incarnation).pid)  # a replica may write before its keeper does
    pid = run.trace(replica, 0, incarnation).pid
    assert pid
    os.kill(pid, signal.SIGKILL)


def test_a_worker_restarts_with_the_same_cluster_and_its_port_stays_claimed_meanwhile(workspace: Workspace) -> None:
    run = start(workspace, "restart: {crash: 3, backoff: {initial: 1h, maximum: 1h}}")
    wait_until(lambda: run.log("worker.1"))
    kill(run, "worker.1")
    wait_until(lambda: run.log("worker.1", 0, 1))
    assert run.log("worker.1", 0, 1) == run.log("worker.1")
    kill(run, "worker.1", 1)
    wait_until(lambda: run.state.delay_seconds)
    (placed,) = [event for event in run.events if isinstance(event, AttemptPlaced)]
    assert claim_port(int(placed.addresses[2].rpartition(":")[2])) is None
    status = workspace.run("status", run.id).out
    assert "worker.1 rejoins (restart 2 of 3): killed by signal 9 (KILL)" in status
    assert "RESTARTING" in status
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
    logs = workspace.run("logs", f"{run.id}.worker.1", "--no-timestamps").out
    assert logs.count('"cluster"') == 2
    assert workspace.run("events", run.id).out.count("worker.1 rejoins") == 2


def test_a_worker_that_is_killed_with_the_supervisor_is_restarted_by_the_next_supervisor(workspace: Workspace) -> None:
    run = start(workspace, "restart: 1")
    run.kill_supervisor()
    kill(run, "worker.0")
    wait_until(lambda: run.is_over("worker.0"))
    assert workspace.run("supervise", run.id).code == 0
    wait_until(lambda: run.log("worker.0", 0, 1))
    workspace.write("go", "")
    state = run.wait_for(Phase.FINISHED)
    assert (state.attempt, state.restarts) == (0, {"crash": 1})


@pytest.mark.usefixtures("private_networks")
def test_a_restarted_worker_joins_the_private_network_again(workspace: Workspace) -> None:
    workspace.write(
        "net.py",
        """
        import json, os, signal, socket, time
        cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
        role, index = os.environ["DRUMLINE_ROLE"], int(os.environ["DRUMLINE_INDEX"])
        if role == "ps":
            server = socket.create_server(("", int(cluster["ps"][0].rpartition(":")[2])))
            while True:
                server.accept()[0].sendall(b"here")
        host, port = cluster["ps"][0].split(":")
        for _ in range(1000):
            try:
                with socket.create_connection((host, int(port)), timeout=5) as connection:
                    print("ps is", connection.recv(4).decode(), flush=True)
                break
            except OSError:
                time.sleep(0.01)
        signal.pause()
        """,
    )
    run = workspace.train(
        GANG.replace("echo $TF_CONFIG; exec sleep 1000", "exec python3 net.py").replace(
            "ps: {run: exec sleep 1000}", "ps: {run: exec python3 net.py}"
        )
        + "restart: 1\nengine: {local: {network: private}}"
    )
    wait_until(lambda: run.state.stepped and all(run.log(f"worker.{index}") for index in (0, 1)))
    kill(run, "worker.0")
    wait_until(lambda: run.log("worker.0", 0, 1) == b"ps is here\n")
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
