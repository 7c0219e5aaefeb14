"""Read from the kernel's log whether a process was killed because memory ran out.

The cgroup of a replica with a memory limit counts such kills. Without a limit, memory may run out in a larger cgroup,
such as that of a container, or on the whole machine; then only the kernel's log has the pid of the killed process. The
log may be unreadable for this user.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable, Iterator

from drumline.engine.local.proc import is_initial_pid_namespace
from drumline.runtime import keeper

LOG = "/dev/kmsg"
_NEAR_SECONDS = 5.0  # at most, between the kernel's message and the end that the keeper recorded
_RECORD_BYTES = 8192
_OOM_KILL = re.compile(
    r"\d+,\d+,(?P<microseconds>\d+),[^;]*;(?P<group>Memory cgroup out|Out) of memory: Kill(?:ed)? process (?P<pid>\d+) "
)


def out_of_memory_message(pid: int, at_seconds: float) -> str:
    """Return a message if the kernel killed this process because memory ran out; "" if not, or if that is unknown.

    `at_seconds` is when the process ended, in seconds since boot.
    """
    try:
        if not is_initial_pid_namespace():  # pids differ from those in the kernel's log
            return ""
        asleep_seconds = keeper.now() - time.monotonic()  # the clock of the log stops while the machine sleeps
        return find_oom_kill(_records(), pid, at_seconds - asleep_seconds)
    except OSError:
        return ""


def find_oom_kill(records: Iterable[str], pid: int, at_seconds: float) -> str:
    """Return a message if a record is about this process and from about the time of its end; "" if none is."""
    for record in records:
        found = _OOM_KILL.match(record)
        if found and int(found["pid"]) == pid:
            if abs(int(found["microseconds"]) / 1e6 - at_seconds) > _NEAR_SECONDS:
                continue  # an earlier process with this pid
            if found["group"] == "Out":
                return "out of memory: the machine has no more"
            return "out of memory: it has no limit of its own, but a larger cgroup has one"
    return ""


def _records() -> Iterator[str]:
    """Yield the records that are in the log now."""
    log = os.open(LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                yield os.read(log, _RECORD_BYTES).decode(errors="replace")
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.EPIPE:  # the next record was overwritten meanwhile
                    raise
    finally:
        os.close(log)
