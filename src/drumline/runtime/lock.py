"""Who is alive: a held lock, never a pid file."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from drumline.runtime.private import NOT_REGULAR, open_file

_MOST_TRIES = 2000  # who looks may have been stopped while it did


def take_lock(path: Path) -> int | None:
    """Lock a file and return its descriptor; None if somebody else holds it. Close it in every fork.

    The holder's pid is written into it, for people; who holds it is what the lock alone says.
    """
    descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
    tries = 20  # a fork of whoever was killed may have it for a moment longer
    for _ in range(_MOST_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tries -= not _is_only_looked_at(descriptor)
            if not tries:
                break
            time.sleep(0.005)
        else:
            with suppress(OSError):  # a full disk
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
            return descriptor
    os.close(descriptor)
    return None


def release_lock(descriptor: int) -> None:
    """Release a lock in order: its file is empty then, while that of a process that died has its pid."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
    os.close(descriptor)


def _is_only_looked_at(descriptor: int) -> bool:
    """Whether nobody has this lock but `is_locked`, for the moment in which it looks: on a busy machine a long one."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def is_locked(path: Path) -> bool:
    """Return whether the lock is held at this moment; what is no regular file is never locked."""
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except OSError as error:
        if error.errno in (errno.ENOENT, *NOT_REGULAR):
            return False
        raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
