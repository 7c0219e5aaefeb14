"""Workspaces in which scripts find drumline's runtime, and what they share: a framework is imported once for all."""

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
    """Where all test processes find the warm processes of trainings, which end with the last of the tests."""
    folder = shared_folder(tmp_path_factory) / "warmth"
    for each in (folder, warm_folder(folder), folder / "tmp"):
        each.mkdir(mode=0o700, exist_ok=True)
    with (folder / "users").open("w") as users:
        flock(users, LOCK_SH)
        yield folder
        with suppress(BlockingIOError):  # another process has trainings to do
            flock(users, LOCK_EX | LOCK_NB)
            stop_warm_processes(folder)
            assert list((folder / "tmp").glob("private-*")) == []


@pytest.fixture
def workspace(tmp_path: Path, warmth: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path, warmth) as place:
        yield place
