"""Whose process wrote a file: the pid that a life left in its trace, and whose child a pid is."""

from __future__ import annotations

import os
import re
from pathlib import Path

from drumline.run.traces import TRACE
from drumline.runtime.private import read_regular

_MOST_BYTES = 1 << 16
_PID = re.compile(rb'"pid": (\d{1,9})\b')


def pid_of(folder: Path) -> int | None:
    """The process of the life whose traces lie in this folder; None if it has none yet."""
    try:
        found = _PID.search(read_regular(folder / TRACE, _MOST_BYTES))
    except OSError:
        return None
    return int(found[1]) if found else None


def session_of(pid: int) -> int | None:
    """Whose child a process is at the most; None if it is gone."""
    try:
        return os.getsid(pid)
    except (ProcessLookupError, OverflowError):  # the latter of a number that a file's name claims
        return None
    except OSError:
        return 0  # it lives, and not for us
