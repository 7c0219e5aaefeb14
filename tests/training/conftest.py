"""Workspaces in which scripts can import drumline's runtime; their warm processes are shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path

import pytest

from drumline.engine.local.warm.client import warm_folder
from drumline.engine.local.warm.pool import stop_warm_processes
from scaffold.shared import shared_folder
from scaffold.workspace import Workspace
from training.examples import open_workspace


@pytest.fixture(scope="session")
def warmth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the folder of the warm processes that all test processes share; they end with the last test."""
    folder = shared_folder(tmp_path_factory) / "warmth"
    for each in (folder, warm_folder(folder), folder / "tmp"):
        each.mkdir(mode=0o700, exist_ok=True)
    with (folder / "users").open("w") as users:
        flock(users, LOCK_SH)
        yield folder
        with suppress(BlockingIOError):  # another test process still runs trainings
            flock(users, LOCK_EX | LOCK_NB)
            stop_warm_processes(folder)
            assert list((folder / "tmp").glob("private-*")) == []


@pytest.fixture
def workspace(tmp_path: Path, warmth: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path, warmth) as place:
        yield place
