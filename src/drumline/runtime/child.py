"""Start child processes as fresh interpreters, since a process with an event loop or threads is never forked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_FOLDER = str(Path(__file__).parents[2])  # that of the package `drumline`


def start_python(
    module: str,
    *words: str,
    descriptors: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    stdout: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start `main(*words)` of a module of drumline in its own session, with these descriptors open.

    The child runs the same interpreter, even if its file was moved, with the same import path. Raise OSError if no
    process can be started.
    """
    folders = [_FOLDER, *filter(None, sys.path)]
    program = f"import sys; sys.path += {folders}; from {module} import main; main(*sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-X", f"utf8={sys.flags.utf8_mode}", "-IS", "-c", program, *words],
        executable="/proc/self/exe",
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        pass_fds=descriptors,
        start_new_session=True,
    )
