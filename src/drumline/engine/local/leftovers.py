"""The processes of a replica after its keeper was killed."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from drumline.engine.local.trace import Trace
from drumline.run.traces import LOG
from drumline.runtime import TRACE_DIR
from drumline.runtime.keeper import descendants, processes, start_ticks


def find_leftovers(
    trace: Trace, *, boot: str, folder: Path, group: Collection[int], keepers: Collection[int]
) -> set[int]:
    """Return all processes of a replica, and their descendants.

    They are in its cgroup or session, have the variable that names its folder, write to its log, or are children of
    this process in another session: a child that is no keeper was below a keeper that died.
    """
    running = list(processes())
    sessions = _sessions(trace) if trace.boot == boot else set()
    own_pid, own_session = os.getpid(), os.getsid(0)
    variable, log = f"{TRACE_DIR}={folder}".encode(), str(folder / LOG)
    found = {
        process.pid
        for process in running
        if process.pid in group
        or (process.parent == own_pid and process.session != own_session and process.pid not in keepers)
        or process.session in sessions
        or _has_variable(process.pid, variable)
        or _writes_to(process.pid, log)
    }
    return (found | descendants(found, running)) - {own_pid, *keepers}


def _sessions(trace: Trace) -> set[int]:
    """Return the sessions that belong to this replica: a session's id is not reused while a process is in it."""
    sessions = set()
    if trace.keeper is not None and start_ticks(trace.keeper) is None:
        sessions.add(trace.keeper)
    if trace.pid is not None and start_ticks(trace.pid) in (None, trace.ticks):
        sessions.add(trace.pid)
    return sessions


def _has_variable(pid: int, variable: bytes) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environ:  # noqa: PTH123
        return variable in environ.read().split(b"\0")
    return False


def _writes_to(pid: int, log: str) -> bool:
    with suppress(OSError):
        return log in (os.readlink(f"/proc/{pid}/fd/{number}") for number in (1, 2))  # noqa: PTH115
    return False
