"""Workspaces in which scripts find drumline's runtime, and what they share: a framework is imported once for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.engine.local.warm.client import warm_folder
from drumline.engine.local.warm.pool import stop_warm_processes
from scaffold.workspace import Workspace
from training.examples import open_workspace


@pytest.fixture(scope="session")
def warmth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the warm processes of all trainings are found; they end with the last of the tests."""
    folder = tmp_path_factory.mktemp("warmth")
    warm_folder(folder).mkdir(mode=0o700)
    yield folder
    stop_warm_processes(folder)


@pytest.fixture
def workspace(tmp_path: Path, warmth: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path, warmth) as place:
        yield place
