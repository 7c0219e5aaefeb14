"""What a supervisor can be asked through its socket, and what becomes of everything else."""

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


class Asked:
    """A supervisor's socket, and what it was asked to stop."""

    def __init__(self, path: Path) -> None:
        self.path, self.loop = path, SteppedLoop()
        self.stops: list[StopRequested] = []
        self.control = ControlServer(path, self.loop, self.stops.append)

    def connect(self) -> socket.socket:
        connection = connect(self.path)
        assert connection
        connection.settimeout(0.0)
        return connection

    def hear(self, connection: socket.socket) -> bytes:
        """Let the supervisor work until it has answered; nothing if it has closed the connection."""
        while True:
            self.loop.turn()
            try:
                return connection.recv(4096)
            except BlockingIOError:
                continue
            except ConnectionError:
                return b""


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    supervisor = Asked(tmp_path / "control")
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
def test_what_is_no_request_is_answered_so_and_changes_nothing(asked: Asked, line: bytes) -> None:
    with asked.connect() as connection:
        connection.sendall(line + b"\n")
        answer = json.loads(asked.hear(connection))
        assert (answer["ok"], "does not know the request" in answer["message"]) == (False, True)
        connection.sendall(json.dumps({"do": "watch"}).encode() + b"\n")
        assert asked.hear(connection) == YES
    assert asked.stops == []


def test_a_request_without_an_end_is_cut_off_and_others_are_heard(asked: Asked) -> None:
    with asked.connect() as endless, asked.connect() as half, asked.connect() as other:
        half.sendall(b'{"do": "st')
        endless.sendall(b"x" * 10_000)
        assert asked.hear(endless) == b""
        other.sendall(b'{"do": "stop"}\n')
        assert asked.hear(other) == YES
    assert len(asked.stops) == 1


def test_stacks_are_refused_where_the_engine_does_not_support_them(asked: Asked) -> None:
    with asked.connect() as connection:
        connection.send(b'{"do": "stacks"}\n')
        assert asked.hear(connection) == REFUSED
        asked.control.dump_stacks = lambda then: then()
        connection.send(b'{"do": "stacks"}\n')
        assert asked.hear(connection) == YES + DONE
