"""Whose process wrote a file: the pid that a life left in its trace, and whose child a pid is."""

from __future__ import annotations

import os
import re
from pathlib import Path

from drumline.run.traces import TRACE

_PID = re.compile(rb'"pid": (\d+)')


def pid_of(folder: Path) -> int | None:
    """The process of the life whose traces lie in this folder; None if it has none yet."""
    try:
        found = _PID.search((folder / TRACE).read_bytes())
    except OSError:
        return None
    return int(found[1]) if found else None


def session_of(pid: int) -> int | None:
    """Whose child a process is at the most; None if it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
    except OSError:
        return 0  # it lives, and not for us
