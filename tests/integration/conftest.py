"""What is installed once for all tests of this folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOY = Path(__file__).parents[1] / "toy"


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the toy is installed, as pip does it."""
    folder = tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-index", "--no-deps", "--no-build-isolation", "--target", folder, TOY], check=True)
    return folder
