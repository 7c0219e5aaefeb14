"""On a host: the lock that keeps a second agent of a run away, and how the next one takes it over.

Home folders may be shared between machines, and a lock there may be held on another one. So a process is ended only if
it is certain that it is the one that wrote itself into the lock.
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

Identity = tuple[str, str, int, int]  # boot, namespace of processes, pid, start ticks

_LOCK_SECONDS = 5.0
_MOMENT_SECONDS = 0.02


def take_over(path: Path) -> int:
    """Lock this host's folder of the run; end the agent that still holds it, which has lost its connection."""
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
    """Return what names a process for good, on this machine or any other; None if it is gone.

    A boot is not enough: containers of one machine have the same boot, and the same numbers for other processes.
    """
    ticks = keeper.start_ticks(pid)
    try:
        space = os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:
        return None
    return None if ticks is None else (keeper.boot_id(), space, pid, ticks)


def _read_holder(path: Path) -> Identity | None:
    """Return the process that wrote itself into a lock; None if it has not, or wrote something else."""
    with suppress(OSError, ValueError, TypeError):
        boot, space, pid, ticks = json.loads(path.read_bytes())
        if type(pid) is int and pid > 1 and boot:
            return boot, space, pid, ticks
    return None
