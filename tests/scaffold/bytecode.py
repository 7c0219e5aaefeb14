"""Compiled modules, as an installation has them.

Where PYTHONDONTWRITEBYTECODE is set, every command of a checkout would compile all of drumline anew.
"""

from __future__ import annotations

import compileall
import sys

from scaffold.environments import ROOT


def compile_sources() -> None:
    """Compile the modules of drumline that changed since they were last compiled."""
    compileall.compile_dir(ROOT / "src", quiet=2)


def keep_compiled_tests() -> None:
    """Let this process write bytecode of the tests; the environment of its child processes is unchanged."""
    sys.dont_write_bytecode = False
