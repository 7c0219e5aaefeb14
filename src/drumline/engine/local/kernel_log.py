"""Read from the kernel's log whether a process was killed because memory ran out.

The cgroup of a replica with a limit counts such kills. Without a limit, memory may run out in a cgroup around it, as
that of a container, or on the whole machine; then only the kernel's log names the process, if it may be read.
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
_NEAR_SECONDS = 5.0  # between the kernel's message and the end that the keeper recorded
_RECORD_BYTES = 8192
_OOM_KILL = re.compile(
    r"\d+,\d+,(?P<microseconds>\d+),[^;]*;(?P<group>Memory cgroup out|Out) of memory: Kill(?:ed)? process (?P<pid>\d+) "
)


def out_of_memory_message(pid: int, at_seconds: float) -> str:
    """Return a message if the kernel killed this process, which ended then, for memory; "" if not or unreadable."""
    try:
        if not is_initial_pid_namespace():  # pids differ from those in the kernel's log
            return ""
        asleep_seconds = keeper.now() - time.monotonic()  # the log's clock does not count time asleep
        return find_oom_kill(_records(), pid, at_seconds - asleep_seconds)
    except OSError:
        return ""


def find_oom_kill(records: Iterable[str], pid: int, at_seconds: float) -> str:
    """Return a message if a record names this process, which ended then; "" if none does."""
    for record in records:
        found = _OOM_KILL.match(record)
        if found and int(found["pid"]) == pid:
            if abs(int(found["microseconds"]) / 1e6 - at_seconds) > _NEAR_SECONDS:
                continue  # an earlier process with this pid
            if found["group"] == "Out":
                return "out of memory: the machine has no more"
            return "out of memory: it has no limit, but a group around it has"
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
