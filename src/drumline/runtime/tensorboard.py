"""Serve TensorBoard: `tensorboard.py FOLDER HOST PORT SCRATCH ROOT PYTHON…`, from its own environment if possible.

Without TensorFlow, TensorBoard starts in a sixth of the time with an eighth of the memory, so it has its own
environment; the first run that needs it builds it. If it cannot be built, for example without a network, the first
PYTHON that has TensorBoard is used. DRUMLINE_TENSORBOARD names an interpreter to use instead.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence

# Older versions need an old setuptools.
REQUIREMENTS = ("tensorboard>=2.21,<3",)
NOT_AVAILABLE = 69  # the same in `run/tensorboard.py`

_CHECK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorboard') is None)"


def serve(folder: str, host: str, port: str, scratch: str, root: str, *pythons: str) -> int:
    """Execute TensorBoard with `scratch` for its temporary files; return an exit code if there is none."""
    os.umask(0o077)  # for files in `scratch`, and for an environment that is built
    command = find(root, pythons)
    if not command:
        return NOT_AVAILABLE
    words = ["-m", "tensorboard.main", "--logdir", folder, "--host", host, "--port", port]
    # One process with one port: the faster loader is a second program with another port.
    words += ["--load_fast", "false"]
    os.chdir("/")  # so that nothing is imported from the user's folder
    _print(f"TensorBoard by {command[0]}")
    try:
        os.execve(command[0], [*command, *words], {**os.environ, "TMPDIR": scratch})
    except OSError as error:
        _print(f"cannot run {command[0]}: {error.strerror}")
    return NOT_AVAILABLE


def find(root: str, pythons: Sequence[str]) -> list[str]:
    """Return an interpreter with TensorBoard, and options for it; an empty list if there is none.

    `root` is the folder of the environments.
    """
    if given := os.environ.get("DRUMLINE_TENSORBOARD"):
        return _first_with_tensorboard([given])
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120
    from drumline.runtime import environment  # noqa: PLC0415 - only importable now: this file is run by any Python

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # an incomplete environment is removed
    try:
        built = environment.provide(root, os.path.realpath(_base()), REQUIREMENTS)
        lock = environment.use(built)
        if lock is not None:
            os.set_inheritable(lock, True)  # TensorBoard holds the lock while it serves
            return [f"{built}/bin/python", "-I"]
    except environment.NotBuilt as error:
        _print(str(error))
    _print("looking for TensorBoard where the training runs")
    return _first_with_tensorboard(pythons)


def _base() -> str:
    """Return the base interpreter of this one: interpreters with the same base share the environment."""
    return str(getattr(sys, "_base_executable", "") or sys.executable)


def _first_with_tensorboard(pythons: Sequence[str]) -> list[str]:
    """Return the first of these interpreters that has TensorBoard; do not import it, which would take seconds."""
    for python in pythons:
        found = shutil.which(python)
        path = os.path.abspath(found) if found else ""  # noqa: PTH100
        if path and subprocess.run([path, "-c", _CHECK], cwd="/", check=False).returncode == 0:
            return [path]
    _print(f"no TensorBoard in {', '.join(pythons)}: `pip install tensorboard` where the training runs")
    return []


def _print(text: str) -> None:
    sys.stdout.write(f"drumline: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(serve(*sys.argv[1:]))
