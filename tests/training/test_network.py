"""Real frameworks in a private network: workers train together, and no process outside reaches their ports."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from drumline.engine.local.network import find_network_problem
from drumline.run.state import Phase
from scaffold.environments import find_python
from scaffold.rendered_gang import GANG_SECONDS, claimed_ports, losses
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

# Connects to an address and prints the result, in the namespaces of a process if one is given.
KNOCK = """
import os, socket, sys
from drumline.runtime.keeper import enter_namespace
for namespace in sys.argv[3:]:
    enter_namespace(os.open(namespace, os.O_RDONLY))
with socket.socket() as client:
    client.settimeout(30)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)  # nothing of a test leaves the machine
    try:
        client.connect((sys.argv[1], int(sys.argv[2])))
        print("open")
    except OSError as error:
        print(error.strerror)
"""


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    if forbidden := find_network_problem():
        pytest.skip(forbidden)
    return workspace


def knock(host: str, port: int, inside: int | None = None) -> str:
    namespaces = [f"/proc/{inside}/ns/{kind}" for kind in ("user", "net")] if inside else []
    words = [sys.executable, "-c", KNOCK, host, str(port), *namespaces]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def own_addresses() -> list[str]:
    """Return the addresses of this machine: loopback, and that of its network if it has one."""
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        try:
            other.connect(("192.0.2.1", 9))  # a datagram socket sends nothing
        except OSError:
            return ["127.0.0.1"]
        return ["127.0.0.1", str(other.getsockname()[0])]


@pytest.mark.parametrize(
    ("template", "environment"), [("keras", "tensorflow"), ("torch", "torch"), ("jax", "jax")], ids=lambda each: each
)
def test_two_workers_train_together_in_a_private_network(workspace: Workspace, template: str, environment: str) -> None:
    workspace.run("init", "--template", template, ".")
    spec = (workspace.project / "drumline.yml").read_text()
    python = find_python(environment)
    with claimed_ports(1) as port:
        private = f"port: {port}\nengine: {{local: {{network: private}}}}\n"
        workspace.write("here.yml", f"{spec.replace('python train.py', f'{python} train.py')}\n{private}")
        answer = workspace.run("train", "-d", "here.yml", "-p", "epochs=100000")
        assert answer.code == 0, answer.err
        run = Run(workspace, answer.out.strip())

        def trained(replica: str) -> dict[int, float]:
            return losses(run.log(replica).decode(errors="replace"))

        def both_train() -> bool:
            assert not run.state.phase.is_final, run.log("worker.0")[-3000:]
            return all(len(trained(replica)) >= 2 for replica in ("worker.0", "worker.1"))

        wait_until(both_train, GANG_SECONDS)
        assert knock("10.77.0.1", port, inside=run.pid("worker.1")) == "open"
        assert {knock(host, port) for host in own_addresses()} == {"Connection refused"}
        assert knock("10.77.0.1", port) == "Network is unreachable"
        assert run.state.phase is Phase.RUNNING
        assert workspace.run("kill", "--force", run.id).code == 0
    first, second = trained("worker.0"), trained("worker.1")
    assert {epoch: loss for epoch, loss in first.items() if epoch in second} == {
        epoch: loss for epoch, loss in second.items() if epoch in first
    }
    assert first[2] < first[1]
