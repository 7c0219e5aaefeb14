"""The owner of a port is found, with its command, and named to a run that asks for the port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from drumline.engine.local.port_owners import find_port_owners, require_free_ports
from drumline.errors import EngineError
from drumline.plan.types import Plan
from scaffold.plans import plan_of

SERVER = (
    "import socket, sys; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()"
)


@contextmanager
def served(**env: str) -> Iterator[tuple[int, int]]:
    """Yield the pid of a listening process, and its port."""
    words = [sys.executable, "-c", SERVER]
    server = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
    )
    assert server.stdout
    try:
        yield server.pid, int(server.stdout.readline())
    finally:
        server.communicate("")


def plan_at(port: int) -> Plan:
    return plan_of(f"framework: plain\nroles: {{worker: {{replicas: 1, port: {port}}}}}")


def test_the_owner_of_a_port_is_a_process_with_its_command() -> None:
    with served() as (pid, port):
        (holder,) = find_port_owners([port])
        assert (holder.port, holder.pid, holder.replica) == (port, pid, "")
        assert str(holder).startswith(f"`{sys.executable} -c ")
        assert f"…` (pid {pid}, " in str(holder)
        with pytest.raises(EngineError, match=f"port {port} is taken by `.*pid {pid}"):
            require_free_ports(plan_at(port), "/nowhere")


def test_the_owner_of_a_port_can_be_a_replica_and_replicas_of_the_same_run_are_no_conflict() -> None:
    known = {"DRUMLINE_RUN": "4", "DRUMLINE_ROLE": "worker", "DRUMLINE_INDEX": "1"}
    with served(DRUMLINE_TRACE="/runs/abc/attempts/0/worker.1", **known) as (pid, port):
        (holder,) = find_port_owners([port])
        assert holder.replica == "4.worker.1"
        assert str(holder).startswith(f"4.worker.1 of another run (pid {pid}, ")
        require_free_ports(plan_at(port), "/runs/abc")
        with pytest.raises(EngineError, match=r"4\.worker\.1 of another run"):
            require_free_ports(plan_at(port), "/runs/ab")


def test_a_port_without_a_listener_has_no_owner(tmp_path: Path) -> None:
    with served() as (_, port), closing(socket.create_connection(("127.0.0.1", port))):
        pass  # the kernel remembers the connection for a minute
    assert find_port_owners([port]) == []
    require_free_ports(plan_at(port), str(tmp_path))
    require_free_ports(plan_of("framework: plain\nroles: {worker: 2}"), str(tmp_path))
