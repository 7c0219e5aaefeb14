"""Requests to a run's supervisor: a socket in the run's folder, one JSON line each.

The connection stays open until the supervisor leaves, so whoever is connected learns of the end by its closing.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline.run.event import StopRequested
from drumline.runtime.unix import is_trusted, listen

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

SAMPLED = b'{"sampled": true}\n'
LOOKED = b'{"looked": true}\n'
_LONGEST_REQUEST = 4096
# At once; who comes then waits for its turn. The descriptors are needed for replicas.
_MOST_CONNECTIONS = 256
_REST_SECONDS = 0.5


class Watch:
    """Somebody wants to see what the replicas use for as long as the connection is open."""


class LookAtStacks:
    """Somebody wants to see what the replicas are doing, and is told when it can be read."""


class ControlServer:
    """Takes requests; owns the socket and every open connection."""

    def __init__(self, path: Path, loop: AbstractEventLoop, accept: Callable[[StopRequested], None]) -> None:
        self._path = path
        self._loop = loop
        self._accept = accept
        self._connections: dict[socket.socket, bytes] = {}
        self._watchers: set[socket.socket] = set()
        self.look_at_stacks: Callable[[Callable[[], object]], object] = lambda then: then()
        self._socket = listen(path)
        self._socket.setblocking(False)
        self._is_listening = False
        self._listen()

    def close(self) -> None:
        """Stop taking requests; the closing of the connections is the last answer."""
        self._path.unlink(missing_ok=True)
        if self._is_listening:
            self._loop.remove_reader(self._socket.fileno())
        for connection in self._connections:
            self._loop.remove_reader(connection.fileno())
            connection.close()
        self._socket.close()

    @property
    def is_watched(self) -> bool:
        """Whether somebody wants to see what the replicas use."""
        return bool(self._watchers)

    def tell_watchers(self) -> None:
        """Tell everybody who watches that there is something new to see."""
        for watcher in self._watchers:
            with suppress(OSError):  # it has left, or does not look
                watcher.send(SAMPLED)

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:  # not closed since
            self._is_listening = True
            self._loop.add_reader(self._socket.fileno(), self._connect)

    def _connect(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError:  # there is no descriptor left
            self._rest()
            return
        if not is_trusted(connection):
            connection.close()
            return
        connection.setblocking(False)
        self._connections[connection] = b""
        self._loop.add_reader(connection.fileno(), lambda: self._read(connection))
        if len(self._connections) >= _MOST_CONNECTIONS:
            self._rest()

    def _rest(self) -> None:
        """Take nobody for a while; until then others may have left."""
        self._is_listening = False
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(_REST_SECONDS, self._listen)

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(_LONGEST_REQUEST)
        except (BlockingIOError, ConnectionError):
            data = b""
        request = self._connections[connection] + data
        if not data or len(request) > _LONGEST_REQUEST:
            self._loop.remove_reader(connection.fileno())
            del self._connections[connection]
            self._watchers.discard(connection)
            connection.close()
            return
        *lines, self._connections[connection] = request.split(b"\n")
        for line in lines:
            asked = parse_request(line, self._loop.time())
            with suppress(OSError):
                connection.send(b'{"ok": false}\n' if asked is None else b'{"ok": true}\n')
            if isinstance(asked, Watch):
                self._watchers.add(connection)
            elif isinstance(asked, LookAtStacks):
                self.look_at_stacks(partial(self._answer, connection, LOOKED))
            elif asked is not None:
                self._accept(asked)

    def _answer(self, connection: socket.socket, answer: bytes) -> None:
        if connection in self._connections:
            with suppress(OSError):  # it has left, or does not look
                connection.send(answer)


def parse_request(line: bytes, at_seconds: float) -> StopRequested | Watch | LookAtStacks | None:
    """Read a request; None for what is not one."""
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(data, dict) and data.get("do") == "stop" and isinstance(data.get("force", False), bool):
        return StopRequested(data.get("force", False), at_seconds)
    if isinstance(data, dict) and data.get("do") == "watch":
        return Watch()
    if isinstance(data, dict) and data.get("do") == "stacks":
        return LookAtStacks()
    return None


def request_stop(connection: socket.socket, *, force: bool) -> None:
    """Ask the supervisor at the other end to end the run."""
    connection.sendall(json.dumps({"do": "stop", "force": force}).encode() + b"\n")


def request_watch(connection: socket.socket) -> None:
    """Say to the supervisor at the other end that somebody watches, until the connection is closed."""
    connection.sendall(json.dumps({"do": "watch"}).encode() + b"\n")


def request_stacks(connection: socket.socket) -> None:
    """Ask the supervisor at the other end to have everybody's stacks saved; return when they are, or it has left."""
    connection.sendall(json.dumps({"do": "stacks"}).encode() + b"\n")
    heard = b""
    with suppress(ConnectionError):
        while LOOKED not in heard and (data := connection.recv(4096)):
            heard += data


def read_answer(connection: socket.socket) -> bool:
    """Whether what was asked has been heard; False if the supervisor left instead."""
    return bool(connection.recv(4096))


def wait_closed(connection: socket.socket) -> None:
    """Return when the supervisor has left."""
    with suppress(ConnectionError):
        while connection.recv(4096):
            pass
