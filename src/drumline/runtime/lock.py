"""Locks that show that a process runs; pid files are not used for that."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from drumline.runtime.private import NOT_REGULAR, open_file

_MOST_TRIES = 2000  # a process that only checks the lock may have been stopped while it holds it


def take_lock(path: Path) -> int | None:
    """Lock a file and return its descriptor, None if another process holds the lock; close it in every fork.

    The pid is written into it for information; only the lock itself counts.
    """
    descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
    tries = 20  # a fork of a killed process may hold the lock a moment longer
    for _ in range(_MOST_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tries -= not _is_only_checked(descriptor)
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
    """Release a lock and empty its file; the file of a process that died still has its pid."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
    os.close(descriptor)


def _is_only_checked(descriptor: int) -> bool:
    """Return whether only calls of `is_locked` hold this lock, which each does for a moment."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def is_locked(path: Path) -> bool:
    """Return whether the lock is held now; False for anything but a regular file."""
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
