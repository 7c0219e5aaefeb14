"""Find the incarnation that a process belongs to: by the pid in a trace, and by the session of a process."""

from __future__ import annotations

import os
import re
from pathlib import Path

from drumline.run.traces import TRACE
from drumline.runtime.private import read_regular

_MOST_BYTES = 1 << 16
_PID = re.compile(rb'"pid": (\d{1,9})\b')


def pid_of(folder: Path) -> int | None:
    """Return the pid of the incarnation with this folder; None if it has no process yet."""
    try:
        found = _PID.search(read_regular(folder / TRACE, _MOST_BYTES))
    except OSError:
        return None
    return int(found[1]) if found else None


def session_of(pid: int) -> int | None:
    """Return the session id of a process; None if the process does not exist, 0 if it belongs to another user."""
    try:
        return os.getsid(pid)
    except (ProcessLookupError, OverflowError):  # OverflowError for a number in a file name
        return None
    except OSError:
        return 0  # it runs, and belongs to another user
