"""Connections of a supervisor to processes that fork keepers: the fork server here, warm processes in `warm/`."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from drumline.runtime.child import start_python
from drumline.runtime.order import Descriptors, Order
from drumline.runtime.unix import send_request

# A fork takes milliseconds. A process that does not answer in time is killed, so that nothing is started twice.
FORK_SECONDS = 30.0
_SERVER = "drumline.runtime.forkserver"
# Beginnings of the variables that the fork server inherits; others may be secrets. These control how the interpreter is
# loaded, its text encoding, and drumline's home.
_KEPT = ("LD_", "LANG", "LC_", "DRUMLINE_HOME")
_PIECE_BYTES = 1 << 20
_LONGEST_ANSWER = 1 << 24


class ForkerLost(Exception):  # noqa: N818
    """The process that forks keepers has ended or does not answer; whether it has forked the keeper is unknown."""


# Returns the pid of a new keeper, which has copies of the descriptors. Raises OSError if no process can be forked, and
# ForkerLost if it is not known whether one was.
Forker = Callable[[Order, Descriptors], Coroutine[Any, Any, int]]


class OrderConnection:
    """A connection to a process that forks keepers; owns the socket and a descriptor of the process."""

    def __init__(self, connection: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._connection: socket.socket | None = connection
        self._loop = loop
        self._read_bytes = b""
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._process: int | None = None
        connection.setblocking(False)  # unanswered orders fit into its buffer
        loop.add_reader(connection.fileno(), self._read)

    @property
    def is_lost(self) -> bool:
        """Return whether the connection is closed."""
        return self._connection is None

    def identify(self, pid: int) -> None:
        """Record which process is at the other end; raise OSError if it has ended."""
        self._process = os.pidfd_open(pid)

    def ask(
        self, name: str, request: Mapping[str, Any], descriptors: Sequence[int] = ()
    ) -> asyncio.Future[dict[str, Any]]:
        """Send a request and return a future of the answer with this name; it raises ForkerLost if none comes."""
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        if self._connection is None:
            answer.set_exception(ForkerLost())
            return answer
        self._answers[name] = answer
        try:
            send_request(self._connection, request, descriptors)
        except OSError:
            self.lose()
        return answer

    async def fork(self, order: Order, descriptors: Descriptors, extra: Mapping[str, Any]) -> int:
        """Have a keeper forked, see Forker; `extra` is sent with the order."""
        # Only the keeper reads the order: secrets that the forking process read would stay in its memory.
        sealed = json.dumps({"order": order._asdict(), **extra}).encode()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            async with asyncio.timeout(FORK_SECONDS):
                with ours:
                    with theirs:
                        answer = self.ask(
                            order.name, _request(order, descriptors), [theirs.fileno(), *descriptors.listed]
                        )
                    with suppress(ConnectionError):  # the answer has the reason why the order was not read
                        await self._loop.sock_sendall(ours, sealed)
                reply = await answer
        except TimeoutError:
            self.lose()
            raise ForkerLost from None
        if "refused" in reply:
            raise OSError(0, str(reply["refused"]))
        try:
            return int(reply["keeper"])
        except (ValueError, TypeError, LookupError):
            self.lose()
            raise ForkerLost from None

    def lose(self) -> None:
        """Close the connection, and kill the process if it may still carry out an order."""
        if self._process is not None and self._answers:
            with suppress(OSError):  # it has ended
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Close the connection; do not signal the process."""
        if self._connection is not None:
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()
            self._connection = None
        if self._process is not None:
            os.close(self._process)
            self._process = None
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(ForkerLost())

    def _read(self) -> None:
        if self._connection is None:
            return
        try:
            data = self._connection.recv(_PIECE_BYTES)
            *lines, self._read_bytes = (self._read_bytes + data).split(b"\n")
            if not data or len(self._read_bytes) > _LONGEST_ANSWER:
                raise ConnectionError
            for line in lines:
                reply = json.loads(line)
                answer = self._answers.pop(str(reply.get("name", "")))
                if not answer.done():  # the start may have been cancelled
                    answer.set_result(reply)
        except BlockingIOError:
            return
        except (OSError, ValueError, AttributeError, LookupError, RecursionError):
            self.lose()


class ForkServer:
    """The process that forks keepers: a fresh interpreter, since this process has an event loop.

    An order starts it if it does not run.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._connection: OrderConnection | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> set[int]:
        """Return the pid of the process, if it was started."""
        return {self._process.pid} if self._process else set()

    async def fork(self, order: Order, descriptors: Descriptors) -> int:
        """Fork a keeper for the command of the order, see Forker."""
        return await self.start().fork(order, descriptors, {})

    def start(self) -> OrderConnection:
        """Start the process unless it runs, and return the connection to it; raise OSError if that fails."""
        if self._connection is None or self._connection.is_lost:
            self._connection = self._connect()
        return self._connection

    def close(self) -> None:
        """End the process; its keepers run on."""
        if self._connection:
            self._connection.close()
            self._connection = None
        if self._process:
            self._process.kill()  # it has no state, and may be stopped by a signal
            self._process.wait()
            self._process = None

    def _connect(self) -> OrderConnection:
        self.close()
        ours, theirs = socket.socketpair()
        env = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
        try:
            with theirs:
                self._process = start_python(_SERVER, str(theirs.fileno()), descriptors=[theirs.fileno()], env=env)
            connection = OrderConnection(ours, self._loop)
            connection.identify(self._process.pid)
        except OSError:
            ours.close()
            raise
        return connection


def _request(order: Order, descriptors: Descriptors) -> dict[str, Any]:
    """Return the request for the forking process: keepers get the limits of this process."""
    return {
        "do": "start",
        "name": order.name,
        "held": len(descriptors.held),
        "umask": _umask(),
        "limits": {name: _soft_limit(name) for name in limit_names() if name != "RLIMIT_NOFILE"},
        "affinity": sorted(os.sched_getaffinity(0)),
    }


def limit_names() -> list[str]:
    """Return the names of all resource limits of the system."""
    return sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))


def _soft_limit(name: str) -> int:
    return resource.getrlimit(getattr(resource, name))[0]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
