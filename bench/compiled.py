"""drumline compiled, as an installer leaves it: else a checkout is compared with peers that are."""

from __future__ import annotations

import compileall
from pathlib import Path

import drumline


def compile_drumline() -> None:
    """Compile what changed since it was last; commands would, each anew, where PYTHONDONTWRITEBYTECODE is set."""
    compileall.compile_dir(Path(drumline.__file__).parent, quiet=1)
