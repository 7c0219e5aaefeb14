"""Read the trace file that a keeper writes about one incarnation of a replica."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from drumline.record import Record
from drumline.run.event import Exit
from drumline.runtime.keeper import start_ticks
from drumline.runtime.lock import is_locked
from drumline.runtime.private import NOT_REGULAR, open_file, read_regular
from drumline.words import format_duration, size

# More than a keeper writes. It is allocated before anything starts, so that a full disk loses no exit.
_RESERVED = b"\n" * 1024
_MOST_BYTES = 1 << 16  # to read

# A cgroup is full a few pages below its limit, since the kernel allocates several at a time.
_FULL_SHARE = 0.95


_LATEST = 1e11  # a later time is invalid
_MOMENT_SECONDS = 0.005


def _is_pid(value: object) -> bool:
    return type(value) is int and 1 < value < 1 << 31  # 0, 1 and -1 are never a replica's pid


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < _LATEST


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_status(value: object) -> bool:
    return value is None or (type(value) is int and 0 <= value < 256)


# The fields that a keeper writes, with their validation; others are ignored.
_VALID: dict[str, Callable[[Any], bool]] = {
    "keeper": _is_pid,
    "pid": _is_pid,
    "ticks": lambda value: value is None or type(value) is int,
    "boot": _is_text,
    "code": _is_status,
    "signal": _is_status,
    "at": _is_number,
    "cpu": _is_number,
    "over": lambda value: value is True,
    "unlimited": _is_text,
    "note": _is_text,
    "lease": _is_number,
    "out_of_memory": lambda value: isinstance(value, list) and len(value) == 2 and all(map(_is_text, value)),
}


class Trace(Record):
    """The keeper, the process and its exit, as far as they are recorded."""

    keeper: int | None = None
    boot: str | None = None
    pid: int | None = None
    ticks: int | None = None
    exit: Exit | None = None
    at_seconds: float = 0.0
    cpu_seconds: float = 0.0  # of the replica and of its processes that ended before it
    over: bool = False  # no process of it was left
    unlimited: str = ""  # why its memory limit could not be set
    note: str = ""  # `warm`, or why it was started cold

    def is_running(self, boot: str) -> bool:
        """Return whether the process runs; False for a trace of another boot."""
        return self.pid is not None and self.exit is None and self.boot == boot and start_ticks(self.pid) == self.ticks


def open_trace(path: Path) -> int | None:
    """Create and lock a new trace; None if this replica was started before.

    Raise OSError if the disk is full.
    """
    descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    try:
        if os.pread(descriptor, 1, 0).strip():
            os.close(descriptor)
            return None
        if os.pwrite(descriptor, _RESERVED, 0) < len(_RESERVED):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_trace(path: Path) -> Trace:
    """Read a trace; ignore incomplete lines and fields that no keeper writes."""
    known: dict[str, Any] = {}
    try:
        data = read_regular(path, _MOST_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOENT, *NOT_REGULAR):  # a replica may have replaced the file
            return Trace()
        raise
    for line in data.strip(b"\n").split(b"\n"):
        try:
            fields = json.loads(line)
            known.update(
                (name, fields[name]) for name, is_valid in _VALID.items() if name in fields and is_valid(fields[name])
            )
        except (ValueError, TypeError, RecursionError):
            continue
    ended = "code" in known or "signal" in known
    return Trace(
        keeper=known.get("keeper"),
        boot=known.get("boot"),
        pid=known.get("pid"),
        ticks=known.get("ticks"),
        exit=_exit(known) if ended else None,
        at_seconds=known.get("at", 0.0),
        cpu_seconds=known.get("cpu", 0.0),
        over=known.get("over", False),
        unlimited=known.get("unlimited", ""),
        note=known.get("note", ""),
    )


def has_begun(path: Path) -> bool:
    """Return whether the replica with this trace was started, in this session or an earlier one."""
    return is_locked(path) or read_trace(path).keeper is not None


async def wait_for_keeper(path: Path) -> int | None:
    """Return the pid of the keeper with this trace, once it is written; None if there is no keeper.

    A trace stays locked for a moment after the forking process has ended, and a new keeper has not written yet.
    """
    while (keeper := read_trace(path).keeper) is None and is_locked(path):
        await asyncio.sleep(_MOMENT_SECONDS)
    return keeper


def _exit(known: Mapping[str, Any]) -> Exit:
    """Return the recorded exit; if the keeper ended the replica because its lease expired, with that reason."""
    end = Exit(known.get("code"), known.get("signal"), *describe_out_of_memory(known))
    if "lease" not in known:
        return end
    message = f"its lease was not renewed for {format_duration(known['lease'])}"
    return end.replace(message=message, reason="LeaseOver")


def describe_out_of_memory(known: Mapping[str, Any]) -> tuple[str, bool]:
    """Return a message with the used memory and the limit, and True, if the keeper recorded that memory ran out.

    Otherwise return an empty message and False.
    """
    if "out_of_memory" not in known:
        return "", False
    used, limit = (int(text) if text.isdecimal() else None for text in known["out_of_memory"])
    if limit is None:
        return "out of memory", True
    if used is None:  # the kernel does not record the peak
        return f"out of memory: its limit is {size(limit)}", True
    if used >= limit * _FULL_SHARE:
        return f"out of memory: it used {size(used)}, all of its limit", True
    # The kernel counts a kill in the cgroup of the process even if the limit of a larger cgroup was reached.
    return f"out of memory: it used {size(used)} of its limit of {size(limit)}, and no more was available", True
