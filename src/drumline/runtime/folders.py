"""Create folders for training scripts."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from drumline.runtime import TRACE_DIR
from drumline.runtime.start_error import StartError

_private: dict[str, Path] = {}


def make(path: str | os.PathLike[str]) -> Path:
    """Create a folder if it is missing, and return it; raise StartError if that fails."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(f"cannot create {folder}: {error.strerror}") from None
    return folder


def private(path: str | os.PathLike[str]) -> Path:
    """Return a private folder of this process to use instead of `path`; it is removed at exit.

    It is in the trace folder, so that it is removed with the run if the process is killed.
    """
    name = os.path.abspath(path)
    if name not in _private:
        try:
            folder = _make_private(os.environ.get(TRACE_DIR))
        except OSError as error:
            raise StartError(f"cannot create a private folder: {error.strerror}: {error.filename}") from None
        atexit.register(_remove, folder, os.getpid())
        _private[name] = folder
    return _private[name]


def _make_private(parent: str | None) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="private-", dir=parent))
    except OSError:
        if parent is None:
            raise
        return _make_private(None)  # the system's folder for temporary files


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that was forked
        shutil.rmtree(folder, ignore_errors=True)
