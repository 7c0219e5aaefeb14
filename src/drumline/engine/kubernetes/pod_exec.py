"""Run a command in a container over a WebSocket of the API server, as `kubectl exec` does."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from httpx2.websockets import HTTPXWSException, WebSocketDisconnect, WebSocketUpgradeError

from drumline.engine.kubernetes.answer_fields import label_number, mapping, mappings, text
from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.api_errors import UnreachableError, refusal
from drumline.engine.kubernetes.connection import REQUEST_ERROR
from drumline.engine.kubernetes.paths import path_of
from drumline.errors import EngineError

if TYPE_CHECKING:
    from httpx2.websockets import AsyncWebSocketSession

Write = Callable[[bytes], Awaitable[None]]

# Version 4, which all supported servers have; it cannot close stdin.
_PROTOCOL = "v4.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE = range(5)
_LARGEST_BYTES = 1 << 20  # of a message
_CHUNK_BYTES = 32 << 10
_LARGEST_CODE = 255


async def execute(
    api: Api,
    pod: str,
    container: str,
    argv: Sequence[str],
    *,
    stdout: Write,
    stderr: Write,
    given: AsyncIterator[bytes] | None = None,
    terminal: bool = False,
) -> int:
    """Run a command and return its exit code; `given` is written to its stdin, which is never closed.

    Raise EngineError if it could not be run, or if the connection was cut.
    """
    params = [("container", container), ("stdout", "true"), ("stderr", "false" if terminal else "true")]
    params += [("stdin", "true")] if given is not None else []
    params += [("tty", "true")] if terminal else []
    params += [("command", word) for word in argv]
    path = f"{path_of('Pod', api.namespace, name=pod)}/exec"
    try:
        async with api.client.websocket(
            path,
            params=tuple(params),
            subprotocols=[_PROTOCOL],
            max_message_size_bytes=_LARGEST_BYTES,
            keepalive_ping_interval_seconds=None,  # TCP keep-alive is used instead
        ) as session:
            feeding = asyncio.ensure_future(_feed(session, given)) if given is not None else None
            sizing = _follow_size(session) if terminal else None
            try:
                return await _receive(session, stdout, stderr)
            finally:
                if sizing:
                    sizing()
                if feeding:
                    feeding.cancel()
                    with suppress(asyncio.CancelledError, HTTPXWSException, REQUEST_ERROR):
                        await feeding
    except WebSocketUpgradeError as error:
        # The body of the response is gone; a plain HTTP request returns the same error.
        answer = await api.requests.read_refusal(path, tuple(params))
        raise refusal(error.response.status_code, answer, api.where, f"run a command in {pod}") from None
    except (HTTPXWSException, REQUEST_ERROR) as error:
        raise UnreachableError(f"the connection to {pod} was cut: {text(str(error)) or type(error).__name__}") from None


async def discard(_: bytes) -> None:
    """Discard the output of a command."""


async def _receive(session: AsyncWebSocketSession, stdout: Write, stderr: Write) -> int:
    while True:
        try:
            data = await session.receive_bytes()
        except WebSocketDisconnect as gone:
            reported = text(gone.reason)
            raise EngineError(
                f"the command ended without an exit status{f': {reported}' if reported else ''}"
            ) from None
        channel, rest = data[:1], data[1:]
        if channel == bytes([_STDOUT]) and rest:
            await stdout(rest)
        elif channel == bytes([_STDERR]) and rest:
            await stderr(rest)
        elif channel == bytes([_STATUS]) and rest:
            return read_status(rest)


def read_status(content: bytes) -> int:
    """Return the exit code in a command's last message; raise EngineError if it has none.

    The node writes the message: a code that no process can have is ignored.
    """
    try:
        status = mapping(json.loads(content))
    except (ValueError, RecursionError):
        status = {"message": content[:4096].decode(errors="replace")}
    if status.get("status") == "Success":
        return 0
    for cause in mappings(mapping(status.get("details")).get("causes")):
        code = label_number(cause.get("message"), default=-1)
        if cause.get("reason") == "ExitCode" and code is not None and 0 < code <= _LARGEST_CODE:
            return code
    raise EngineError(f"the command could not be run: {text(status.get('message')) or 'no reason was given'}")


async def _feed(session: AsyncWebSocketSession, given: AsyncIterator[bytes]) -> None:
    async for data in given:
        for at in range(0, len(data), _CHUNK_BYTES):
            await session.send_bytes(bytes([_STDIN]) + data[at : at + _CHUNK_BYTES])


def _follow_size(session: AsyncWebSocketSession) -> Callable[[], object]:
    """Send the size of the terminal now and when it changes; return a function that stops this."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Future[None]] = set()

    def send_size() -> None:
        with suppress(OSError):
            size = os.get_terminal_size(sys.stdout.fileno())
            message = json.dumps({"Width": size.columns, "Height": size.lines}).encode()
            task = asyncio.ensure_future(session.send_bytes(bytes([_RESIZE]) + message))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    send_size()
    loop.add_signal_handler(signal.SIGWINCH, send_size)
    return lambda: loop.remove_signal_handler(signal.SIGWINCH)


async def read_stdin() -> AsyncIterator[bytes]:
    """Yield the bytes of stdin as they arrive."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    while True:
        ready = asyncio.Event()
        try:
            loop.add_reader(descriptor, ready.set)
        except PermissionError:  # a regular file is always ready
            ready.set()
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
        data = os.read(descriptor, _CHUNK_BYTES)
        if not data:
            return
        yield data


class raw_terminal:  # noqa: N801
    """Puts the terminal into raw mode during the block, so that Ctrl-C goes to the remote side."""

    def __enter__(self) -> None:
        self._was = termios.tcgetattr(sys.stdin.fileno())
        tty.setraw(sys.stdin.fileno(), termios.TCSADRAIN)  # what was typed ahead is not lost

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._was)
