"""Folders that are made once for all test processes of a session, which xdist starts in parallel."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder that all test processes of this session share."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that the first test process fills by `make`; the other processes wait until it is full."""
    folder, made = (shared_folder(factory) / each for each in (name, f"{name}.made"))
    with (shared_folder(factory) / f"{name}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            made.touch()
    return folder
