"""Orders for keepers, as the fork server and the warm process carry them out.

This module is one file and imports the standard library only: a warm process loads it by its path, like the keeper.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

MOST_DESCRIPTORS = 250  # the kernel passes 253 at once
# Exceptions that a malformed request may raise.
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)

LEASE_GRACE_SECONDS = 10.0
_LEASE_CHECKS = 8  # during one lease
_LEASE_PAUSE_SECONDS = 5.0


class NextSupervisor(NamedTuple):
    """How to start the next supervisor of a run: the run's folder, a command, and the last supervisor's environment.

    The number of this start and the maximum are appended to the command.
    """

    folder: str
    argv: Sequence[str]
    env: Mapping[str, str]


class Order(NamedTuple):
    """A replica to run; `note` is `warm`, or why it was started cold.

    `file_limits` are the replica's limits of open files, since the supervisor raised its own. `group` is
    the folder of a memory cgroup for the replica alone: the keeper stays outside.

    `lease` is a file that is touched while the replica is needed; `lease_seconds` after the last touch the keeper ends
    the replica.
    Without `next_supervisor`, as on other machines, the keeper starts no supervisor.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    workdir: str
    boot: str = ""
    file_limits: tuple[int, int] | None = None
    group: str = ""
    note: str = ""
    lease: str = ""
    lease_seconds: float = 0.0
    next_supervisor: NextSupervisor | None = None

    def begin_lease(self, pid: int, now: Callable[[], float]) -> Lease | None:
        """Return the lease of the replica with this pid, if it has one."""
        return Lease(self.lease, self.lease_seconds, pid, now) if self.lease else None


class Lease:
    """Ends a replica if its lease file was not touched for `seconds`.

    So replicas end on a machine that the launching machine can no longer reach. The time since the last touch is
    measured by `now`, since file times depend on a clock that may be set.
    """

    is_needed = True  # while the replica runs

    def __init__(self, path: str, seconds: float, pid: int, now: Callable[[], float]) -> None:
        self._path = path
        self._pid = pid
        self._now = now
        self._touched = self._last_touch()
        self._until = now() + seconds
        self._kill_at: float | None = None
        self.seconds = seconds
        self.pause_seconds = min(seconds / _LEASE_CHECKS, _LEASE_PAUSE_SECONDS)
        self.is_over = False  # stays True

    def check(self) -> None:
        """If the lease is over, send TERM to the replica's group, and KILL after the grace."""
        touched, at = self._last_touch(), self._now()
        if touched != self._touched:
            self._touched, self._until = touched, at + self.seconds
        self.is_over |= at >= self._until
        if self.is_over and (self._kill_at is None or at >= self._kill_at):
            for number in (signal.SIGTERM if self._kill_at is None else signal.SIGKILL, signal.SIGCONT):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid, number)
            self._kill_at = self._kill_at or at + LEASE_GRACE_SECONDS

    def _last_touch(self) -> int:
        with suppress(OSError):
            return os.stat(self._path).st_mtime_ns  # noqa: PTH116
        return 0


def lease_ends_within(seconds: float) -> float:
    """Return the seconds after the last touch within which a replica ends; its leftovers may take another grace."""
    checks = 2 * _LEASE_PAUSE_SECONDS  # at the end of the lease and of the grace, up to the next check
    return seconds + checks + LEASE_GRACE_SECONDS


class Descriptors(NamedTuple):
    """The open descriptors that a keeper gets.

    `trace` is locked. `news` is a pipe to which the process writes one line with its name and pid before it becomes the
    replica. `held` are claims, which the keeper keeps open until it ends. The replica, not the keeper, enters the
    namespaces in `enter`, in this order.
    """

    trace: int
    log: int
    news: int
    held: Sequence[int] = ()
    enter: Sequence[int] = ()

    @property
    def listed(self) -> list[int]:
        """Return all descriptors in the order in which they are sent."""
        return [self.trace, self.log, self.news, *self.held, *self.enter]

    @property
    def all(self) -> set[int]:
        """Return each descriptor once."""
        return set(self.listed)


Keep = Callable[[Order, Descriptors, Mapping[str, Any]], object]


def fork_keeper(
    request: Mapping[str, Any], descriptors: list[int], *, release: Callable[[], object], keep: Keep
) -> dict[str, Any] | None:
    """Fork a keeper, and return the answer for the supervisor; in the fork, return None if `keep` returns.

    `release` closes the descriptors that the fork must not have. `keep` also gets the extra data that was sent with the
    order. The order is read in the fork, so that secrets are never in the memory of the serving process. Raise one of
    MALFORMED for a malformed request.
    """
    name, held = str(request["name"]), int(request["held"])
    sealed, trace, log, news, *others = descriptors
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about threads, which a warm process has checked
            pid = os.fork()
    except OSError as error:
        return {"name": name, "refused": error.strerror}
    if pid:
        return {"name": name, "keeper": pid}
    is_replica = False
    try:
        release()
        descriptors.clear()  # the keeper owns them
        with os.fdopen(sealed, "rb") as file:
            sent = json.load(file)
        os.umask(request["umask"])
        os.sched_setaffinity(0, request["affinity"])
        for limit, soft in request["limits"].items():
            number = getattr(resource, limit)
            resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))
        keep(Order(**sent.pop("order")), Descriptors(trace, log, news, others[:held], others[held:]), sent)
        is_replica = True
    finally:
        if not is_replica:
            os._exit(1)  # a keeper that fails must not return to the serving loop
    return None
