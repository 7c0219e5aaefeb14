"""The agent's process on another machine: it reads frames from stdin, answers on stdout, and exits when they close.

`bootstrap.py` starts it; it needs the standard library only.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from typing import Any, NoReturn

from drumline.engine.agent.frames import MAGIC, Frame, FrameParser
from drumline.engine.agent.verbs import Verbs
from drumline.engine.loop import BootClockLoop

_PIECE_BYTES = 1 << 16
_CHECK_SECONDS = 0.5  # between two checks whether the connection is abandoned
_BUSY_BYTES = 1 << 20  # logs wait while more is unsent


class FrameWriter:
    """Writes frames to a descriptor as fast as they are read, without blocking."""

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._unsent = bytearray()
        os.set_blocking(descriptor, False)

    def write(self, message: dict[str, Any], data: bytes = b"") -> None:
        """Send a frame after all earlier ones."""
        self._unsent += Frame(message, data).encode()
        self._flush()

    def is_busy(self) -> bool:
        """Return whether so much is unsent that logs have to wait."""
        return len(self._unsent) > _BUSY_BYTES

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._descriptor, self._unsent[:_PIECE_BYTES])]
        except BlockingIOError:
            self._loop.add_writer(self._descriptor, self._flush)
        except OSError:
            _leave()
        else:
            self._loop.remove_writer(self._descriptor)


def main() -> NoReturn:
    """Carry out requests until the connection ends."""
    inward, outward = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # keepers inherit these, and must not keep the connection open
        os.dup2(null, descriptor)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=BootClockLoop) as runner:
        runner.run(_serve(inward, outward))
    _leave()


async def _serve(inward: int, outward: int) -> None:
    """Read frames from one descriptor and answer on the other; return when the connection ends or is abandoned."""
    loop = asyncio.get_running_loop()
    os.write(outward, MAGIC + json.dumps({"ready": True}).encode() + b"\n")
    writer = FrameWriter(loop, outward)
    verbs = Verbs(loop, writer.write, writer.is_busy)
    parser, received = FrameParser(), asyncio.Queue[Frame | None]()

    def read() -> None:
        with suppress(OSError):
            if data := os.read(inward, _PIECE_BYTES):
                verbs.touch()
                for frame in parser.feed(data):
                    received.put_nowait(frame)
                return
        loop.remove_reader(inward)
        if received.empty():
            _leave()
        received.put_nowait(None)  # after the requests that have already arrived

    loop.add_reader(inward, read)
    while not verbs.is_abandoned:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CHECK_SECONDS):
                frame = await received.get()
            if frame is None:
                return
            await verbs.handle(frame)  # one request after the other


def _leave() -> NoReturn:
    """Exit at once: the connection has ended. Replicas continue."""
    os._exit(0)
