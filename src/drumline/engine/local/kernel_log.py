"""What the kernel's log says of a process that was killed: whether that was for want of memory.

A replica with a limit has a group that counts this. Without one, memory may run out in a group around it, as that of a
container, or on the whole machine; then only the kernel's log has the name of its victim, where it may be read.
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
_NEAR_SECONDS = 5.0  # from the kernel's word to an end that its keeper has seen
_RECORD_BYTES = 8192
_VICTIM = re.compile(
    r"\d+,\d+,(?P<microseconds>\d+),[^;]*;(?P<group>Memory cgroup out|Out) of memory: Kill(?:ed)? process (?P<pid>\d+) "
)


def out_of_memory_message(pid: int, at_seconds: float) -> str:
    """Why the kernel chose this process, which ended at this time; nothing if it did not, or its log is secret."""
    try:
        if not is_initial_pid_namespace():  # processes have other numbers than in the kernel's log
            return ""
        asleep_seconds = keeper.now() - time.monotonic()  # which the log's clock does not count
        return find_oom_kill(_records(), pid, at_seconds - asleep_seconds)
    except OSError:
        return ""


def find_oom_kill(records: Iterable[str], pid: int, at_seconds: float) -> str:
    """What records of the kernel's log say of a process that ended then; nothing if they do not name it."""
    for record in records:
        found = _VICTIM.match(record)
        if found and int(found["pid"]) == pid:
            if abs(int(found["microseconds"]) / 1e6 - at_seconds) > _NEAR_SECONDS:
                continue  # somebody else, who had this number before
            if found["group"] == "Out":
                return "out of memory: the machine has no more"
            return "out of memory: it has no limit, but a group around it has"
    return ""


def _records() -> Iterator[str]:
    """Everything that is in the log now."""
    log = os.open(LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                yield os.read(log, _RECORD_BYTES).decode(errors="replace")
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.EPIPE:  # what we were to read next was overwritten meanwhile
                    raise
    finally:
        os.close(log)
