"""Limit the CPU time and the memory that evaluating a file from a user may take."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SECONDS = 2.0
MEMORY_BYTES = 512 << 20
_AGAIN_SECONDS = 0.1  # the exception is raised again, since the computation may have caught the first


class TooLongError(Exception):
    """The computation took longer than allowed."""


@contextmanager
def bounded(seconds: float = SECONDS) -> Iterator[None]:
    """Raise TooLongError or MemoryError if the block exceeds the limits; do nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError(f"takes more than {seconds:g} seconds to compute")

    limits = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN_SECONDS)
    try:
        with suppress(OSError, ValueError):  # without a limit if the memory in use is not known
            resource.setrlimit(resource.RLIMIT_AS, (_lower(_used_bytes() + MEMORY_BYTES, limits[0]), limits[1]))
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, limits)


def _lower(one: int, other: int) -> int:
    """Return the lower limit; `other` may be RLIM_INFINITY, which is no limit."""
    return one if other == resource.RLIM_INFINITY else min(one, other)


def _used_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123
        return int(statm.read().split()[0]) * resource.getpagesize()
