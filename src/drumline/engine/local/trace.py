"""What a keeper left on disk about one incarnation of a replica, read back."""

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

# More than a keeper ever writes. The room is there before anything starts, so that no full disk hides an end.
_ROOM = b"\n" * 1024
_MOST_BYTES = 1 << 16  # that are read

# A group is full a few pages before its limit, since the kernel hands out some at a time.
_ALL = 0.95


_LATEST = 1e11  # a time beyond this is damage
_MOMENT_SECONDS = 0.005


def _is_pid(value: object) -> bool:
    return type(value) is int and 1 < value < 1 << 31  # whoever signals 0, 1 or -1 means somebody else


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < _LATEST


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_status(value: object) -> bool:
    return value is None or (type(value) is int and 0 <= value < 256)


# What a keeper writes; whatever else stands there is damage, and not there.
_FITS: dict[str, Callable[[Any], bool]] = {
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
    """Its keeper, which process it is or was, and how that ended, as far as that is recorded."""

    keeper: int | None = None
    boot: str | None = None
    pid: int | None = None
    ticks: int | None = None
    exit: Exit | None = None
    at_seconds: float = 0.0
    cpu_seconds: float = 0.0  # that it computed, and whatever it started and did not outlive it
    over: bool = False  # nothing that it started was left
    unlimited: str = ""  # why it runs without the memory limit that it should have
    note: str = ""  # how it came to be started as it was

    def is_running(self, boot: str) -> bool:
        """Return whether it names a process of this boot that has not ended."""
        return self.pid is not None and self.exit is None and self.boot == boot and start_ticks(self.pid) == self.ticks


def open_trace(path: Path) -> int | None:
    """Create and lock a new trace; None if this replica was started before and must not be again.

    Raise OSError if there is no room for it.
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
        if os.pwrite(descriptor, _ROOM, 0) < len(_ROOM):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_trace(path: Path) -> Trace:
    """Read what is there; lines that are not whole, and what no keeper writes, are not there."""
    known: dict[str, Any] = {}
    try:
        data = read_regular(path, _MOST_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOENT, *NOT_REGULAR):  # a replica may have put anything in its place
            return Trace()
        raise
    for line in data.strip(b"\n").split(b"\n"):
        try:
            said = json.loads(line)
            known.update((name, said[name]) for name, fits in _FITS.items() if name in said and fits(said[name]))
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
    """Return whether the replica with this trace was started, in whichever session; it will not be again."""
    return is_locked(path) or read_trace(path).keeper is not None


async def wait_for_keeper(path: Path) -> int | None:
    """Return the keeper that began its work with this trace, once that is known; None if none did.

    A trace stays locked for a moment after the process has ended that was to fork the keeper, and a young keeper
    has not written yet.
    """
    while (keeper := read_trace(path).keeper) is None and is_locked(path):
        await asyncio.sleep(_MOMENT_SECONDS)
    return keeper


def _exit(known: Mapping[str, Any]) -> Exit:
    """How it ended; by its keeper's hand, if nobody wanted it any more."""
    end = Exit(known.get("code"), known.get("signal"), *describe_out_of_memory(known))
    if "lease" not in known:
        return end
    message = f"nobody had asked after it for {format_duration(known['lease'])}, so its lease was over"
    return end.replace(message=message, reason="LeaseOver")


def describe_out_of_memory(known: Mapping[str, Any]) -> tuple[str, bool]:
    """What a keeper knows about want of memory, as a message with the numbers, and whether there was any."""
    if "out_of_memory" not in known:
        return "", False
    used, limit = (int(text) if text.isdecimal() else None for text in known["out_of_memory"])
    if limit is None:
        return "out of memory", True
    if used is None:  # a kernel that does not remember
        return f"out of memory: its limit is {size(limit)}", True
    if used >= limit * _ALL:
        return f"out of memory: it used {size(used)}, all of its limit", True
    # Whoever is ended in a group counts there, also when the shortage was in a larger one around it.
    return f"out of memory: it used {size(used)} of its limit of {size(limit)}, and more was not to be had", True
