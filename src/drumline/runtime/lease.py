"""A lease: for how long a replica may live on when nobody asks after it any more.

Whoever wants it touches a file; a keeper looks at that now and then. So nothing goes on for ever on a machine that the
launching one cannot reach, or when that is gone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

GRACE_SECONDS = 10.0
_LOOKS = 8  # while it lasts
_PAUSE_SECONDS = 5.0


def gone_within(seconds: float) -> float:
    """How long after the last touch a replica with such a lease is gone at the latest; leftovers get a grace more."""
    looks = 2 * _PAUSE_SECONDS  # one that finds the lease over, and one that finds the grace over
    return seconds + looks + GRACE_SECONDS


class Lease:
    """How long a replica may live on; by a clock of our own, since those of files may be set."""

    def __init__(self, path: str, seconds: float, now: Callable[[], float]) -> None:
        self.now = now
        self._path = path
        self._seconds = seconds
        self._touched = self._look()
        self._until = now() + seconds
        self.is_over = False

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next look."""
        return min(self._seconds / _LOOKS, _PAUSE_SECONDS)

    def look(self) -> bool:
        """Whether it is over; once it is, it stays so."""
        touched = self._look()
        if touched != self._touched:
            self._touched, self._until = touched, self.now() + self._seconds
        self.is_over |= self.now() >= self._until
        return self.is_over

    def _look(self) -> int:
        with suppress(OSError):
            return os.stat(self._path).st_mtime_ns
        return 0


def wait_for(pid: int, lease: Lease) -> tuple[int, float]:
    """Reap whatever ends until it is this process; return its wait status, and what all of them computed in seconds.

    It may live only as long as its lease lasts: then it is asked to end, with its group, and killed.
    """
    # While it is blocked, an end is not missed between a look and the wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    cpu_seconds = 0.0
    kill_at = None
    while True:
        ended, status, used = os.wait3(os.WNOHANG)
        cpu_seconds += used.ru_utime + used.ru_stime if ended else 0.0
        if ended == pid:
            return status, cpu_seconds
        if ended:
            continue
        if lease.look() and (kill_at is None or lease.now() >= kill_at):
            for number in (signal.SIGTERM if kill_at is None else signal.SIGKILL, signal.SIGCONT):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, number)
            kill_at = kill_at or lease.now() + GRACE_SECONDS
        signal.sigtimedwait({signal.SIGCHLD}, lease.pause_seconds)
