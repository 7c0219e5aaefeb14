"""The sockets of real processes, read from the kernel's tables."""

from __future__ import annotations

import os
import socket

import pytest

from drumline.engine.local.sockets import read_sockets
from drumline.plan.types import ReplicaId
from drumline.run.incarnation import Incarnation
from drumline.run.rendezvous import Sockets


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_listening_and_connected_sockets_are_found(family: socket.AddressFamily, host: str) -> None:
    if family is socket.AF_INET6 and not socket.has_ipv6:
        pytest.skip("there is no IPv6 here")
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("there is no such address here")
    with server:
        port = server.getsockname()[1]
        bound = socket.socket(family)  # bound is not listening
        bound.bind((host, 0))
        waits, go = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go)
            server.close()
            caller = socket.create_connection((host, port))
            caller.sendall(b"x")
            os.read(waits, 1)
            os._exit(0)
        os.close(waits)
        heard, _ = server.accept()
        try:
            assert heard.recv(1) == b"x"
            found = read_sockets({Incarnation(ReplicaId("worker", 0), 0): os.getpid()})
            below = {each.replica: each for each in found}[ReplicaId("worker", 0)]
            address = f"{host}:{port}" if family is socket.AF_INET else f"[{host}]:{port}"
            assert address in below.connected
            assert bound.getsockname()[1] not in below.listening
        finally:
            os.close(go)
            os.waitpid(pid, 0)
            heard.close()
            bound.close()


def test_a_child_that_listens_is_seen_with_its_port() -> None:
    ready, tell = os.pipe()
    waits, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        server = socket.create_server(("", 0))
        os.write(tell, str(server.getsockname()[1]).encode())
        os.read(waits, 1)
        os._exit(0)
    os.close(waits)
    port = int(os.read(ready, 16))
    try:
        (found,) = read_sockets({Incarnation(ReplicaId("worker", 0), 0): os.getpid()})
        assert isinstance(found, Sockets)
        assert port in found.listening
    finally:
        for descriptor in (go, ready, tell):
            os.close(descriptor)
        os.waitpid(pid, 0)


def test_an_ended_process_has_no_sockets() -> None:
    assert list(read_sockets({Incarnation(ReplicaId("worker", 0), 0): 4_000_001})) == []
