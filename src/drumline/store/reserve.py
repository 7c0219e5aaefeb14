"""Room on the disk that a file has before it needs it; apart from the journal, since only its writer needs this."""

from __future__ import annotations

import ctypes
import errno
import sys

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE: room behind the end of a file that no reader sees


def reserve_room(file: int, start: int, length: int) -> bool:
    """See to it that this part of an open file can be written; False if the disk is full.

    Where a file system cannot do that, a write that fails will tell.
    """
    if sys.platform != "linux":
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.fallocate(file, _KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(length))
    return not (failed and ctypes.get_errno() in (errno.ENOSPC, errno.EDQUOT))
