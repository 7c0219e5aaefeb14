"""The lock on a host that allows one agent for each run, and its takeover by the next agent.

Home folders may be shared between machines, so the holder of a lock may be on another machine. A process is ended only
if it is certainly the one that is recorded in the lock.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from drumline.runtime import keeper
from drumline.runtime.lock import take_lock

Identity = tuple[str, str, int, int]  # boot id, pid namespace, pid, start ticks

_LOCK_SECONDS = 5.0
_MOMENT_SECONDS = 0.02


def take_over(path: Path) -> int:
    """Lock this host's folder of the run and return the lock's descriptor; kill an agent that still holds the lock.

    Such an agent has lost its connection. Raise OSError if the lock is not free within 5 s.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    while (lock := take_lock(path)) is None:
        holder = _read_holder(path)
        if holder and holder == _identify(holder[-2]):
            keeper.signal_process(holder[-2], signal.SIGKILL)
        if time.monotonic() > deadline:
            raise OSError(errno.EAGAIN, f"{path} stays locked by another machine or process")
        time.sleep(_MOMENT_SECONDS)
    with suppress(OSError):  # a full disk
        os.pwrite(lock, json.dumps(_identify(os.getpid())).encode() + b"\n", 0)
    return lock


def _identify(pid: int) -> Identity | None:
    """Return an identity of a process that is unique on all machines; None if the process has ended.

    A boot id is not enough: containers of one machine have the same one, and the same pids for other processes.
    """
    ticks = keeper.start_ticks(pid)
    try:
        space = os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:
        return None
    return None if ticks is None else (keeper.boot_id(), space, pid, ticks)


def _read_holder(path: Path) -> Identity | None:
    """Return the process that is recorded in a lock; None if there is none or the record is invalid."""
    with suppress(OSError, ValueError, TypeError):
        boot, space, pid, ticks = json.loads(path.read_bytes())
        if type(pid) is int and pid > 1 and boot:
            return boot, space, pid, ticks
    return None
