"""The process on a host that is a supervisor's hand there: it hears on stdin, answers on stdout, and ends with them.

It is carried there and started by `drumline.engine.ssh`, and knows nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

from drumline.engine.ssh.host import Hand
from drumline.engine.ssh.wire import MAGIC, Frame, Frames
from drumline.supervise.loop import EventLoop

_PIECE_BYTES = 1 << 16
_BUSY_BYTES = 1 << 20  # logs wait while so much is still to be said


class _Mouth:
    """Says what is to be said, as fast as it is heard; nobody waits for that."""

    def __init__(self, loop: EventLoop, descriptor: int) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._unsaid = bytearray()
        self._ready = select.epoll()  # readable itself when there is room to write, which is all that a loop can see
        self._ready.register(descriptor, select.EPOLLOUT)
        os.set_blocking(descriptor, False)
        self._is_waiting = False

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
            pass
        except OSError:
            _leave()
        if bool(self._unsaid) != self._is_waiting:
            self._is_waiting = not self._is_waiting
            if self._is_waiting:
                self._loop.on_readable(self._ready.fileno(), self._go_on)
            else:
                self._loop.forget(self._ready.fileno())


def main() -> NoReturn:
    """Do as told until nobody is there any more."""
    inward, outward = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # keepers hold these three, and must not hold the connection
        os.dup2(null, descriptor)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    loop = EventLoop()
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

    loop.on_readable(inward, hear)
    while not hand.is_forsaken:
        loop.turn()
    _leave()


def _leave() -> NoReturn:
    """The connection is gone, or nobody at its other end; whoever runs here goes on."""
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
