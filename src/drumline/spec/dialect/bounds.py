"""Bounds for what a file makes us compute: so much time of the processor, so much memory more, and then an error."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SECONDS = 2.0
MEMORY_BYTES = 512 << 20
_AGAIN_SECONDS = 0.1  # whoever computes may have taken the first for an error of its own


class TooLongError(Exception):
    """What was to be computed takes longer than anybody waits for it."""


@contextmanager
def bounded(seconds: float = SECONDS) -> Iterator[None]:
    """Raise TooLongError or MemoryError in whatever computes beyond the bounds; only the main thread can be stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError(f"takes more than {seconds:g} seconds to be worked out")

    limits = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN_SECONDS)
    try:
        with suppress(OSError, ValueError):  # where there is no telling how much we have, there is no bound
            resource.setrlimit(resource.RLIMIT_AS, (_lower(_used_bytes() + MEMORY_BYTES, limits[0]), limits[1]))
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, limits)


def _lower(one: int, other: int) -> int:
    return one if other == resource.RLIM_INFINITY else min(one, other)


def _used_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123
        return int(statm.read().split()[0]) * resource.getpagesize()
