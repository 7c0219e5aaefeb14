"""The environments that are kept on this machine, as rows."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from drumline.record import Record
from drumline.runtime.environment import MARK, is_ready, kept, last_used, take_lock


class EnvironmentRow(Record):
    """One environment: its packages, and the run or project that uses it."""

    name: str
    path: str
    state: str  # ready, in use, building, or broken (by an interrupted build or an uninstalled Python)
    bytes: int
    used_at: float
    python: str = ""
    requirements: tuple[str, ...] = ()


def environment_rows(root: str) -> list[EnvironmentRow]:
    """Return the environments in this folder, sorted by name."""
    return [_row(folder) for folder in kept(root) if os.path.isdir(folder)]  # noqa: PTH112


def _row(folder: str) -> EnvironmentRow:
    try:
        mark = json.loads(Path(folder, MARK).read_text())
    except (OSError, ValueError):
        mark = {}
    ready, taken = is_ready(folder), _is_taken(folder)
    state = ("in use" if taken else "ready") if ready else ("building" if taken else "broken")
    return EnvironmentRow(
        name=os.path.basename(folder),  # noqa: PTH119
        path=folder,
        state=state,
        bytes=int(mark.get("bytes", 0)),
        used_at=last_used(folder),
        python=str(mark.get("python", "")),
        requirements=tuple(map(str, mark.get("requirements", ()))),
    )


def _is_taken(folder: str) -> bool:
    try:
        lock = take_lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # the lock belongs to another user
        return False
    if lock is not None:
        os.close(lock)
    return lock is None
