"""Watching: a supervisor is watched while a connection is open, and a command waits for new samples."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.run.event import StopRequested
from drumline.runtime.unix import connect
from drumline.supervise.control import ControlServer, request_stop
from drumline.supervise.watch import Watch
from scaffold.loops import SteppedLoop


class ServedControlSocket:
    """A supervisor's control socket, and the stop requests that it has received."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.loop = SteppedLoop()
        self.asked: list[StopRequested] = []
        self.control = ControlServer(path, self.loop, self.asked.append)
        self.is_open = True

    def turn_until_watched(self, *, watched: bool) -> None:
        while self.control.is_watched != watched:
            self.loop.turn()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.control.close()
            self.loop.close()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[ServedControlSocket]]:
    opened = [ServedControlSocket(tmp_path / name) for name in ("first", "second")]
    yield opened
    for server in opened:
        server.close()


def test_a_supervisor_is_watched_as_long_as_a_connection_is_open(servers: list[ServedControlSocket]) -> None:
    server, _ = servers
    assert not server.control.is_watched
    one, other = Watch(), Watch()
    one.follow([server.path])
    other.follow([server.path])
    server.turn_until_watched(watched=True)
    one.close()
    other.follow([])  # it watches no run any more
    server.turn_until_watched(watched=False)
    assert not server.asked


def test_a_watching_command_waits_until_all_runs_were_sampled(servers: list[ServedControlSocket]) -> None:
    watch = Watch()
    watch.follow([server.path for server in servers])
    for server in servers:
        server.turn_until_watched(watched=True)
        server.control.notify_watchers()
    watch.wait(60.0)
    assert watch.is_answered
    watch.close()


def test_a_command_does_not_wait_for_a_supervisor_that_has_exited(servers: list[ServedControlSocket]) -> None:
    first, second = servers
    watch = Watch()
    watch.follow([server.path for server in servers])
    for server in servers:
        server.turn_until_watched(watched=True)
    first.control.notify_watchers()
    second.close()
    watch.wait(60.0)
    first.close()
    watch.wait(60.0)
    assert not watch.is_answered
    watch.follow([first.path])  # no supervisor is there
    assert not watch.is_answered


def test_a_supervisor_does_not_wait_for_a_client_that_does_not_read(servers: list[ServedControlSocket]) -> None:
    server, _ = servers
    watch = Watch()
    watch.follow([server.path])
    server.turn_until_watched(watched=True)
    for _ in range(100_000):
        server.control.notify_watchers()
    assert server.control.is_watched
    watch.close()


def test_a_run_can_be_ended_while_it_is_watched(servers: list[ServedControlSocket]) -> None:
    server, _ = servers
    watch = Watch()
    watch.follow([server.path])
    connection = connect(server.path)
    assert connection
    with connection:
        request_stop(connection, force=True)
        while not server.asked:
            server.loop.turn()
    assert [asked.force for asked in server.asked] == [True]
    watch.close()


def test_clients_beyond_the_limit_of_connections_are_served_when_others_have_left(
    servers: list[ServedControlSocket],
) -> None:
    server, _ = servers
    silent = [connection for _ in range(300) if (connection := connect_at_once(server))]
    asker = connect_at_once(server)
    request_stop(asker, force=True)
    for connection in silent[:100]:
        connection.close()
    while not server.asked:
        server.loop.turn()
    assert asker.recv(100) == b'{"ok": true}\n'
    for connection in (asker, *silent):
        connection.close()


def connect_at_once(server: ServedControlSocket) -> socket.socket:
    """Let the supervisor accept waiting connections, and return a new one."""
    server.loop.turn()
    connection = connect(server.path)
    assert connection
    return connection


def test_a_supervisor_without_a_free_descriptor_accepts_a_connection_later(servers: list[ServedControlSocket]) -> None:
    server, _ = servers
    asker = connect(server.path)
    assert asker
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (asker.fileno(), limits[1]))
    try:
        server.loop.turn()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    request_stop(asker, force=False)
    while not server.asked:
        server.loop.turn()
    asker.close()
