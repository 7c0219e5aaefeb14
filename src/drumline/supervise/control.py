"""Requests to a run's supervisor, through a socket in the run's folder: one line of JSON per request.

Each request is answered with a line: `{"ok": true}`, or `{"ok": false}` with a message. The connection stays open until
the supervisor exits: when it is closed, the client knows that the supervisor has exited.
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
DONE = b'{"looked": true}\n'
_LONGEST_REQUEST = 4096
# Connections that are open at once; further clients wait. Descriptors are limited, and replicas need them.
_MOST_CONNECTIONS = 256
_PAUSE_SECONDS = 0.5


class Watch:
    """A request for frequent samples of what replicas use, as long as the connection is open."""


class DumpStacks:
    """A request for stack dumps of all replicas; a second answer follows when they are saved."""


class RefreshCopy:
    """A request to a follower to update its copy of a run that is supervised elsewhere, without starting a supervisor.

    A second answer follows when the copy is complete, or cannot be made.
    """


# Accepts a stop request. Returns None, or a coroutine that forwards the request and returns the problem, else "".
Accept = Callable[[StopRequested], Coroutine[Any, Any, str] | None]


class ControlServer:
    """Accepts requests; owns the socket and every open connection."""

    def __init__(self, path: Path, loop: AbstractEventLoop, accept: Accept) -> None:
        self._path = path
        self._loop = loop
        self._accept = accept
        self._forwarding: set[Task[None]] = set()
        self._connections: dict[socket.socket, bytes] = {}
        self._watchers: set[socket.socket] = set()
        self.dump_stacks: Callable[[Callable[[], object]], object] | None = None  # where that is supported
        self.refresh_copy: Callable[[Callable[[], object]], object] = lambda then: then()
        self._socket = listen(path)
        self._socket.setblocking(False)
        self._is_listening = False
        self._listen()

    def close(self) -> None:
        """Stop accepting requests, and close every connection."""
        self._path.unlink(missing_ok=True)
        if self._is_listening:
            self._loop.remove_reader(self._socket.fileno())
        for connection in self._connections:
            self._loop.remove_reader(connection.fileno())
            connection.close()
        self._socket.close()

    @property
    def is_watched(self) -> bool:
        """Return whether a client has requested samples."""
        return bool(self._watchers)

    def notify_watchers(self) -> None:
        """Send a notice of a new sample to every client that has requested samples."""
        for watcher in self._watchers:
            with suppress(OSError):  # it has closed, or does not read
                watcher.send(SAMPLED)

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:  # not closed meanwhile
            self._is_listening = True
            self._loop.add_reader(self._socket.fileno(), self._connect)

    def _connect(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError:  # there is no descriptor left
            self._pause()
            return
        if not is_trusted(connection):
            connection.close()
            return
        connection.setblocking(False)
        self._connections[connection] = b""
        self._loop.add_reader(connection.fileno(), lambda: self._read(connection))
        if len(self._connections) >= _MOST_CONNECTIONS:
            self._pause()

    def _pause(self) -> None:
        """Accept no connection for a while; others may close until then."""
        self._is_listening = False
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(_PAUSE_SECONDS, self._listen)

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
            parsed = parse_request(line, self._loop.time())
            if parsed is None:
                self._answer(connection, _answer(_describe_unknown(line)))
            elif isinstance(parsed, StopRequested):
                self._accept_stop(connection, parsed)
            elif isinstance(parsed, Watch):
                self._answer(connection, _answer())
                self._watchers.add(connection)
            else:
                perform = self.refresh_copy if isinstance(parsed, RefreshCopy) else self.dump_stacks
                self._answer(connection, _answer() if perform else REFUSED)
                if perform:
                    perform(partial(self._answer, connection, DONE))

    def _accept_stop(self, connection: socket.socket, request: StopRequested) -> None:
        forwarding = self._accept(request)
        if forwarding is None:
            self._answer(connection, _answer())
        else:
            task = self._loop.create_task(self._answer_later(connection, forwarding))
            self._forwarding.add(task)  # the loop keeps only weak references to its tasks
            task.add_done_callback(self._forwarding.discard)

    async def _answer_later(self, connection: socket.socket, forwarding: Coroutine[Any, Any, str]) -> None:
        self._answer(connection, _answer(await forwarding))

    def _answer(self, connection: socket.socket, answer: bytes) -> None:
        if connection in self._connections:
            with suppress(OSError):  # it has closed, or does not read
                connection.send(answer)


def _answer(problem: str = "") -> bytes:
    answer: dict[str, object] = {"ok": False, "message": problem} if problem else {"ok": True}
    return json.dumps(answer).encode() + b"\n"


REFUSED = _answer("its engine does not support that")


def _describe_unknown(line: bytes) -> str:
    request = line[:80].decode("ascii", "backslashreplace")
    return f"the supervisor is drumline {__version__}, which does not know the request {request}"


def parse_request(line: bytes, at_seconds: float) -> StopRequested | Watch | DumpStacks | RefreshCopy | None:
    """Return the request in this line; None if it is not a known request."""
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(data, dict) and data.get("do") == "stop" and isinstance(data.get("force", False), bool):
        return StopRequested(data.get("force", False), at_seconds)
    if isinstance(data, dict) and data.get("do") == "watch":
        return Watch()
    if isinstance(data, dict) and data.get("do") == "stacks":
        return DumpStacks()
    if isinstance(data, dict) and data.get("do") == "look":
        return RefreshCopy()
    return None


def request_stop(connection: socket.socket, *, force: bool) -> None:
    """Ask the connected supervisor to end the run."""
    connection.sendall(json.dumps({"do": "stop", "force": force}).encode() + b"\n")


def request_watch(connection: socket.socket) -> None:
    """Ask the connected supervisor for samples until the connection is closed."""
    connection.sendall(json.dumps({"do": "watch"}).encode() + b"\n")


def request_stacks(connection: socket.socket) -> bool:
    """Ask the connected supervisor to save the stacks of all replicas; return when they are saved, or it has exited.

    Return False if its engine does not support stack dumps.
    """
    return _request_and_wait(connection, "stacks")


def request_refresh(connection: socket.socket, seconds: float) -> None:
    """Ask the connected follower to update its copy; return when it is updated, or the follower has exited.

    Return after `seconds` at the latest.
    """
    connection.settimeout(seconds)
    _request_and_wait(connection, "look")


def _request_and_wait(connection: socket.socket, what: str) -> bool:
    """Send a request, and return when it is done; return False if it was refused."""
    received = b""
    with suppress(ConnectionError, TimeoutError):
        connection.sendall(json.dumps({"do": what}).encode() + b"\n")
        while DONE not in received and REFUSED not in received and (data := connection.recv(4096)):
            received += data
    return REFUSED not in received


def read_answer(connection: socket.socket) -> bool:
    """Return whether the request was accepted; False if the supervisor exited. Raise EngineError if it refused."""
    received = b""
    while b"\n" not in received and (data := connection.recv(_LONGEST_REQUEST)):
        received += data
    if not received:
        return False
    try:
        answer: Any = json.loads(received.partition(b"\n")[0])
        is_ok, message = answer["ok"] is True, str(answer.get("message", "the supervisor refused the request"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_ok, message = False, "the supervisor sent an answer that drumline does not understand"
    if not is_ok:
        raise EngineError(message)
    return True


def wait_closed(connection: socket.socket) -> None:
    """Return when the supervisor has exited."""
    with suppress(ConnectionError):
        while connection.recv(4096):
            pass
