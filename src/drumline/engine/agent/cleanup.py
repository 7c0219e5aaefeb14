"""Remove agent packages on this host that were not used for a month.

An agent locks the folder of its package, and updates the folder's modification time. If folders cannot be locked, for
instance on NFS, nothing is removed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

UNUSED_SECONDS = 30 * 86400.0
# A package is named by the hash of its content; `tmp…` are left from an interrupted creation or removal.
_OURS = re.compile(r"[0-9a-f]{16}|tmp[\w-]+")


def remove_unused_packages(folder: Path) -> None:
    """Remove packages that were not used for a month and are not in use; one that cannot be removed stays."""
    with suppress(OSError), os.scandir(folder) as entries:
        ours = [each for each in entries if _OURS.fullmatch(each.name)]
        for name in [each.name for each in ours if _is_old(each.stat(follow_symlinks=False))]:
            with suppress(OSError):
                _remove(folder, name)


def _remove(folder: Path, name: str) -> None:
    """Remove a folder unless it is in use; an agent that starts meanwhile finds it complete or not at all."""
    held = os.open(folder / name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_old(os.fstat(held)) and not _is_imported(name):  # an agent may have used and released it meanwhile
            aside = folder / f"tmp-{name}-{os.getpid()}"
            (folder / name).rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
    finally:
        os.close(held)


def _is_old(known: os.stat_result) -> bool:
    return time.time() - known.st_mtime > UNUSED_SECONDS


def _is_imported(name: str) -> bool:
    """Return whether a process has this folder in its variables: a replica outlives the agent that started it."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"/{name}/".encode() in environ.read_bytes():
                return True
    return False
