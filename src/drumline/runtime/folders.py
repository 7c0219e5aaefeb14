"""Folders that are there when they are asked for."""

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
    """Make a folder if it is missing."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(f"{folder} cannot be made: {error.strerror}") from None
    return folder


def private(path: str | os.PathLike[str]) -> Path:
    """A folder of this process alone that stands for another; removed when Python ends.

    It lies with the traces, so that what a killed process leaves goes with its run.
    """
    name = os.path.abspath(path)
    if name not in _private:
        try:
            folder = _make_private(os.environ.get(TRACE_DIR))
        except OSError as error:
            raise StartError(f"no private folder can be made: {error.strerror}: {error.filename}") from None
        atexit.register(_remove, folder, os.getpid())
        _private[name] = folder
    return _private[name]


def _make_private(place: str | None) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="private-", dir=place))
    except OSError:
        if place is None:
            raise
        return _make_private(None)  # where everybody may write


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that was forked
        shutil.rmtree(folder, ignore_errors=True)
