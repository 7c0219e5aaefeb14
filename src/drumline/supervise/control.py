"""Requests to a run's supervisor: a socket in the run's folder, one JSON line each.

Each is answered with a line: `{"ok": true}`, or `{"ok": false}` with a message. The connection stays open until the
supervisor leaves, so whoever is connected learns of the end by its closing.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline import __version__
from drumline.errors import EngineError
from drumline.run.event import StopRequested
from drumline.runtime.unix import is_trusted, listen

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task

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


class LookAround:
    """Asked of a follower: copy what there is of a run that is supervised elsewhere, and start no supervisor there.

    As a request, answered when that is done, or cannot be.
    """


# Takes a stop; returns nothing, or what says later why it cannot be passed on, and nothing if it was.
Accept = Callable[[StopRequested], Coroutine[Any, Any, str] | None]


class ControlServer:
    """Takes requests; owns the socket and every open connection."""

    def __init__(self, path: Path, loop: AbstractEventLoop, accept: Accept) -> None:
        self._path = path
        self._loop = loop
        self._accept = accept
        self._passing: set[Task[None]] = set()
        self._connections: dict[socket.socket, bytes] = {}
        self._watchers: set[socket.socket] = set()
        self.look_at_stacks: Callable[[Callable[[], object]], object] | None = None  # where that is supported
        self.look_around: Callable[[Callable[[], object]], object] = lambda then: then()
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
            if asked is None:
                self._answer(connection, _answer(_not_known(line)))
            elif isinstance(asked, StopRequested):
                self._take_stop(connection, asked)
            elif isinstance(asked, Watch):
                self._answer(connection, _answer())
                self._watchers.add(connection)
            else:
                look = self.look_around if isinstance(asked, LookAround) else self.look_at_stacks
                self._answer(connection, _answer() if look else REFUSED)
                if look:
                    look(partial(self._answer, connection, LOOKED))

    def _take_stop(self, connection: socket.socket, asked: StopRequested) -> None:
        passing = self._accept(asked)
        if passing is None:
            self._answer(connection, _answer())
        else:
            task = self._loop.create_task(self._answer_later(connection, passing))
            self._passing.add(task)  # the loop itself keeps none
            task.add_done_callback(self._passing.discard)

    async def _answer_later(self, connection: socket.socket, passing: Coroutine[Any, Any, str]) -> None:
        self._answer(connection, _answer(await passing))

    def _answer(self, connection: socket.socket, answer: bytes) -> None:
        if connection in self._connections:
            with suppress(OSError):  # it has left, or does not look
                connection.send(answer)


def _answer(problem: str = "") -> bytes:
    told: dict[str, object] = {"ok": False, "message": problem} if problem else {"ok": True}
    return json.dumps(told).encode() + b"\n"


REFUSED = _answer("its engine does not support that")


def _not_known(line: bytes) -> str:
    said = line[:80].decode("ascii", "backslashreplace")
    return f"the supervisor is of drumline {__version__}, which does not know the request {said}"


def parse_request(line: bytes, at_seconds: float) -> StopRequested | Watch | LookAtStacks | LookAround | None:
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
    if isinstance(data, dict) and data.get("do") == "look":
        return LookAround()
    return None


def request_stop(connection: socket.socket, *, force: bool) -> None:
    """Ask the supervisor at the other end to end the run."""
    connection.sendall(json.dumps({"do": "stop", "force": force}).encode() + b"\n")


def request_watch(connection: socket.socket) -> None:
    """Say to the supervisor at the other end that somebody watches, until the connection is closed."""
    connection.sendall(json.dumps({"do": "watch"}).encode() + b"\n")


def request_stacks(connection: socket.socket) -> bool:
    """Ask the supervisor at the other end to save the stacks of all replicas; return when that is done, or it has left.

    Return False if its engine does not support that.
    """
    return _request_look(connection, "stacks")


def request_look(connection: socket.socket, seconds: float) -> None:
    """Ask the follower at the other end to look now; return when it has, it has left, or after so long."""
    connection.settimeout(seconds)
    _request_look(connection, "look")


def _request_look(connection: socket.socket, what: str) -> bool:
    heard = b""
    with suppress(ConnectionError, TimeoutError):
        connection.sendall(json.dumps({"do": what}).encode() + b"\n")
        while LOOKED not in heard and REFUSED not in heard and (data := connection.recv(4096)):
            heard += data
    return REFUSED not in heard


def read_answer(connection: socket.socket) -> bool:
    """Whether what was asked has been heard; False if the supervisor left instead. Raise EngineError if it refused."""
    heard = b""
    while b"\n" not in heard and (data := connection.recv(_LONGEST_REQUEST)):
        heard += data
    if not heard:
        return False
    try:
        told: Any = json.loads(heard.partition(b"\n")[0])
        is_ok, message = told["ok"] is True, str(told.get("message", "the supervisor has refused"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_ok, message = False, "the supervisor has answered something that drumline does not say"
    if not is_ok:
        raise EngineError(message)
    return True


def wait_closed(connection: socket.socket) -> None:
    """Return when the supervisor has left."""
    with suppress(ConnectionError):
        while connection.recv(4096):
            pass
