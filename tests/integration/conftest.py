"""The toy engine, installed once for all tests of this folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scaffold.shared import make_once

TOY = Path(__file__).parents[1] / "toy"


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which pip has installed the toy engine."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    words = [*pip, "--no-index", "--no-deps", "--no-build-isolation"]
    return make_once(
        tmp_path_factory, "packages", lambda folder: subprocess.run([*words, "--target", folder, TOY], check=True)
    )
