"""The environments of the frameworks, which `scripts/environment` builds."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@cache
def find_python(environment: str) -> Path:
    """Return the Python of a framework's environment; raise if it is missing, so that no test is skipped silently."""
    script = ROOT / "scripts" / "environment"
    path = Path(
        subprocess.run([script, "--path", environment], capture_output=True, text=True, check=True).stdout.strip()
    )
    if not (path / ".ready").exists():
        pytest.fail(f"the environment `{environment}` is not built: run `scripts/environment {environment}`")
    return path / "bin" / "python"
