"""The process on a host that is a supervisor's hand there: it hears on stdin, answers on stdout, and ends with them.

It is carried there and started by `drumline.engine.ssh`, and knows nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

from drumline.engine.ssh.host import Hand
from drumline.engine.ssh.wire import MAGIC, Frame, Frames
from drumline.supervise.loop import BootClockLoop

_PIECE_BYTES = 1 << 16
_LOOK_SECONDS = 0.5
_BUSY_BYTES = 1 << 20  # logs wait while so much is still to be said


class _Mouth:
    """Says what is to be said, as fast as it is heard; nobody waits for that."""

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._unsaid = bytearray()
        os.set_blocking(descriptor, False)

    def say(self, message: dict[str, Any], data: bytes = b"") -> None:
        self._unsaid += Frame(message, data).encode()
        self._go_on()

    def is_busy(self) -> bool:
        return len(self._unsaid) > _BUSY_BYTES

    def _go_on(self) -> None:
        try:
            while self._unsaid:
                del self._unsaid[: os.write(self._descriptor, self._unsaid[:_PIECE_BYTES])]
        except BlockingIOError:
            self._loop.add_writer(self._descriptor, self._go_on)
        except OSError:
            _leave()
        else:
            self._loop.remove_writer(self._descriptor)


def main() -> NoReturn:
    """Do as told until nobody is there any more."""
    inward, outward = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # keepers hold these three, and must not hold the connection
        os.dup2(null, descriptor)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=BootClockLoop) as runner:
        runner.run(_obey(inward, outward))
    _leave()


async def _obey(inward: int, outward: int) -> None:
    """Do what is asked on one descriptor and answer on the other, until the other end has been silent for too long."""
    loop = asyncio.get_running_loop()
    os.write(outward, MAGIC + json.dumps({"ready": True}).encode() + b"\n")
    mouth = _Mouth(loop, outward)
    hand = Hand(loop, mouth.say, mouth.is_busy)
    frames = Frames()

    def hear() -> None:
        with suppress(OSError):
            if data := os.read(inward, _PIECE_BYTES):
                for frame in frames.feed(data):
                    hand.hear(frame)
                return
        _leave()

    loop.add_reader(inward, hear)
    while not hand.is_forsaken:
        await asyncio.sleep(_LOOK_SECONDS)
    _leave()


def _leave() -> NoReturn:
    """The connection is gone, or nobody at its other end; whoever runs here goes on."""
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
