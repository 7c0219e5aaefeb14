"""Compile drumline, as an installer does: otherwise a checkout would be compared with compiled peers."""

from __future__ import annotations

import compileall
from pathlib import Path

import drumline


def compile_drumline() -> None:
    """Compile what has changed; with PYTHONDONTWRITEBYTECODE every command would compile it again."""
    compileall.compile_dir(Path(drumline.__file__).parent, quiet=1)
