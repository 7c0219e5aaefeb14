"""Ports: claimed while a replica may still bind them, and open to the replica itself."""

from __future__ import annotations

import socket

import pytest

from drumline.engine.ports import claim_port
from drumline.run.event import AttemptPlaced
from drumline.run.state import Phase
from scaffold.processes import is_alive
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Run, Workspace

SERVER = """
import json, os, socket, sys
address = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][0]
port = int(address.rpartition(":")[2])
family, options = (socket.AF_INET6, sys.argv[2:]) if sys.argv[1] == "6" else (socket.AF_INET, sys.argv[2:])
server = socket.socket(family)
if family == socket.AF_INET6:
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
for option in options:
    server.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
server.bind(("::" if family == socket.AF_INET6 else "", port))
server.listen()
client = socket.create_connection(("127.0.0.1", port), timeout=10)
accepted, _ = server.accept()
client.sendall(b"through")
assert accepted.recv(7) == b"through"
print("served on", port)
"""


def ports(run: Run) -> list[int]:
    events = wait_until(lambda: [event for event in run.events if isinstance(event, AttemptPlaced)])
    return [int(address.rpartition(":")[2]) for address in events[-1].addresses]


def abstract_names() -> set[str]:
    with open("/proc/net/unix") as listing:  # noqa: PTH123
        return {line.split()[-1] for line in listing}


def test_runs_at_the_same_time_never_share_a_port(workspace: Workspace) -> None:
    workspace.write_spec("roles: {worker: 4, ps: 2}\nrun: exec sleep 1000\ntimeouts: {grace: 1}")
    commands = [workspace.command("train", "-d") for _ in range(5)]
    runs = [Run(workspace, command.communicate(timeout=PATIENCE_SECONDS)[0].strip()) for command in commands]
    taken = [port for run in runs for port in ports(run)]
    assert len(taken) == len(set(taken)) == 30
    assert workspace.run("kill", "--force", *(run.id for run in runs)).code == 0


@pytest.mark.parametrize(
    "words",
    ["4 SO_REUSEADDR", "4 SO_REUSEPORT", "4 SO_REUSEADDR SO_REUSEPORT", "6 SO_REUSEADDR", "6 SO_REUSEPORT"],
)
def test_a_replica_can_listen_on_the_port_that_is_claimed_for_it(workspace: Workspace, words: str) -> None:
    workspace.write("server.py", SERVER)
    run = workspace.train(f"""
        framework: tensorflow
        tensorflow: {{tf_config: always}}
        run: python server.py {words}
    """)
    run.wait_for(Phase.FINISHED)
    assert run.log("worker.0").decode() == f"served on {ports(run)[0]}\n"


def test_a_port_stays_claimed_as_long_as_its_replica_runs_whatever_happens_to_supervisors(
    workspace: Workspace,
) -> None:
    run = workspace.train("run: echo $$ > $HERE/up; exec sleep 1000")
    workspace.wait_numbers("up", 1)
    (port,) = ports(run)
    run.kill_supervisor()
    wait_until(lambda: f"@drumline-port-{port}" in abstract_names())  # a changing list may lack an entry
    assert claim_port(port) is None
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("", port))
    assert workspace.run("kill", run.id).code == 0
    assert not is_alive(workspace.numbers("up")[0])
    wait_until(lambda: claim_port(port)).close()  # another test may have it for a moment


def test_a_port_with_a_listener_is_not_claimed() -> None:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""), (socket.AF_INET6, "::")):
        with socket.socket(family) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((address, 0))
            server.listen()
            assert claim_port(server.getsockname()[1]) is None
