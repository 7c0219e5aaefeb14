"""Orders for keepers, as the fork server and the warm process carry them out.

It is one file, and imports the standard library only: a warm process loads it by its path, as it loads the keeper's.
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
# What a request that is not understood may raise.
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)

LEASE_GRACE_SECONDS = 10.0
_LEASE_LOOKS = 8  # while it lasts
_LEASE_PAUSE_SECONDS = 5.0


class NextSupervisor(NamedTuple):
    """How to start the next supervisor of a run: the run's folder, and a command with the environment of the last one.

    The number of the return and the most there may be are added to the command.
    """

    folder: str
    argv: Sequence[str]
    env: Mapping[str, str]


class Order(NamedTuple):
    """Which replica to run, and as what; `note` says how it came to be started this way.

    A supervisor that raised its own limit of open files says in `file_limits` what the replica is to have. `group` is
    the folder of a memory cgroup for the replica alone: the keeper stays outside.

    `lease` is a file that is touched as long as the replica is wanted; after `lease_seconds` without that it is ended.
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
        """Return the lease of the replica that is this process, if it has one."""
        return Lease(self.lease, self.lease_seconds, pid, now) if self.lease else None


class Lease:
    """Ends a replica that is not wanted any more: one whose file was not touched for so many seconds.

    So nothing goes on for ever on a machine that the launching one cannot reach, or when that is gone. How long ago the
    file was touched is measured by `now`, since the clocks of files may be set.
    """

    is_needed = True  # as long as the replica lives

    def __init__(self, path: str, seconds: float, pid: int, now: Callable[[], float]) -> None:
        self._path = path
        self._pid = pid
        self._now = now
        self._touched = self._last_touch()
        self._until = now() + seconds
        self._kill_at: float | None = None
        self.seconds = seconds
        self.pause_seconds = min(seconds / _LEASE_LOOKS, _LEASE_PAUSE_SECONDS)
        self.is_over = False  # once it is, it stays so

    def look(self) -> None:
        """If the lease is over, ask the replica and its group to end, and kill them when the grace is over."""
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
    """Return how long after the last touch a replica with such a lease is gone; its leftovers get a grace more."""
    looks = 2 * _LEASE_PAUSE_SECONDS  # one that finds the lease over, and one that finds the grace over
    return seconds + looks + LEASE_GRACE_SECONDS


class Descriptors(NamedTuple):
    """The open descriptors that a keeper gets.

    `trace` is locked already. `news` is a pipe: one line with the name and pid when the process is about to become the
    replica. Those in `held` stay open for as long as the keeper lives: claims, which end with the replica. The
    namespaces in `enter` are the replica's and not the keeper's: the process enters them, in this order.
    """

    trace: int
    log: int
    news: int
    held: Sequence[int] = ()
    enter: Sequence[int] = ()

    @property
    def listed(self) -> list[int]:
        """Return all of them in the order in which they are sent."""
        return [self.trace, self.log, self.news, *self.held, *self.enter]

    @property
    def all(self) -> set[int]:
        """Return each of them once."""
        return set(self.listed)


Keep = Callable[[Order, Descriptors, Mapping[str, Any]], object]


def fork_keeper(
    request: Mapping[str, Any], descriptors: list[int], *, release: Callable[[], object], keep: Keep
) -> dict[str, Any] | None:
    """Fork a keeper, and return the answer for the supervisor; in the fork return None if `keep` returns there.

    `release` closes what the fork must not have. `keep` also gets what was sent beside the order. The order is read
    in the fork, so that no secret is ever in the memory of the process that serves. Raise one of MALFORMED for what
    is no order.
    """
    name, held = str(request["name"]), int(request["held"])
    sealed, trace, log, news, *others = descriptors
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads: a warm process has counted them
            pid = os.fork()
    except OSError as error:
        return {"name": name, "refused": error.strerror}
    if pid:
        return {"name": name, "keeper": pid}
    is_replica = False
    try:
        release()
        descriptors.clear()  # they are the keeper's
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
            os._exit(1)  # a keeper that cannot begin must not go on as the process that serves
    return None
