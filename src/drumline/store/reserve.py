"""Allocate disk space for a file in advance; only writers of journals import this module."""

from __future__ import annotations

import ctypes
import errno
import sys

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE: the size that readers see does not change


def reserve_room(file: int, start: int, length: int) -> bool:
    """Allocate `length` bytes from the offset `start` of an open file; return False if the disk is full.

    Return True if the file system does not support allocation.
    """
    if sys.platform != "linux":
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.fallocate(file, _KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(length))
    return not (failed and ctypes.get_errno() in (errno.ENOSPC, errno.EDQUOT))
