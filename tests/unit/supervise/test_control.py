"""The requests that a supervisor accepts through its socket, and its answers to all other data."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.run.event import StopRequested
from drumline.runtime.unix import connect
from drumline.supervise.control import DONE, REFUSED, ControlServer, DumpStacks, RefreshCopy, Watch, parse_request
from scaffold.loops import SteppedLoop

YES = b'{"ok": true}\n'


class ControlSocket:
    """A supervisor's control socket, and the stop requests that it has received."""

    def __init__(self, path: Path) -> None:
        self.path, self.loop = path, SteppedLoop()
        self.stops: list[StopRequested] = []
        self.control = ControlServer(path, self.loop, self.stops.append)

    def connect(self) -> socket.socket:
        connection = connect(self.path)
        assert connection
        connection.settimeout(0.0)
        return connection

    def receive(self, connection: socket.socket) -> bytes:
        """Run the loop until there is an answer, and return it; empty if the connection was closed."""
        while True:
            self.loop.turn()
            try:
                return connection.recv(4096)
            except BlockingIOError:
                continue
            except ConnectionError:
                return b""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlSocket]:
    supervisor = ControlSocket(tmp_path / "control")
    yield supervisor
    supervisor.control.close()
    supervisor.loop.close()


def test_there_are_four_requests() -> None:
    assert parse_request(b'{"do": "stop"}', 1.0) == StopRequested(False, 1.0)
    assert parse_request(b'{"do": "stop", "force": true}', 1.0) == StopRequested(True, 1.0)
    assert isinstance(parse_request(b'{"do": "watch"}', 1.0), Watch)
    assert isinstance(parse_request(b'{"do": "stacks"}', 1.0), DumpStacks)
    assert isinstance(parse_request(b'{"do": "look"}', 1.0), RefreshCopy)


NONSENSE = [
    b"", b"{", b"[]", b"7", b"null", b"{}", b'{"do": 5}', b'{"do": ["stop"]}', b'{"do": "run"}', b'{"do": "STOP"}',
    b'{"do": "stop", "force": 1}', b'{"do": "stop", "force": "yes"}', b"\xff\xfe", b"\0\0\0\0", b'{"do": "\\ud800"}',
    b"[" * 4000, b"9" * 4000, b"-" * 4000,
]  # fmt: skip


@pytest.mark.parametrize("line", NONSENSE, ids=[ascii(line[:20]) for line in NONSENSE])
def test_an_unknown_request_gets_an_error_and_changes_nothing(server: ControlSocket, line: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(line + b"\n")
        answer = json.loads(server.receive(connection))
        assert (answer["ok"], "does not know the request" in answer["message"]) == (False, True)
        connection.sendall(json.dumps({"do": "watch"}).encode() + b"\n")
        assert server.receive(connection) == YES
    assert server.stops == []


def test_a_client_that_sends_an_endless_request_is_disconnected_and_other_clients_are_served(
    server: ControlSocket,
) -> None:
    with server.connect() as endless, server.connect() as half, server.connect() as other:
        half.sendall(b'{"do": "st')
        endless.sendall(b"x" * 10_000)
        assert server.receive(endless) == b""
        other.sendall(b'{"do": "stop"}\n')
        assert server.receive(other) == YES
    assert len(server.stops) == 1


def test_stacks_are_refused_if_the_engine_does_not_support_them(server: ControlSocket) -> None:
    with server.connect() as connection:
        connection.send(b'{"do": "stacks"}\n')
        assert server.receive(connection) == REFUSED
        server.control.dump_stacks = lambda then: then()
        connection.send(b'{"do": "stacks"}\n')
        assert server.receive(connection) == YES + DONE
