"""Serve TensorBoard: `tensorboard.py FOLDER HOST PORT SCRATCH ROOT PYTHON…`, from an environment of its own if it can.

Without TensorFlow beside it TensorBoard starts in a sixth of the time and an eighth of the memory, so it gets an
environment that has nothing else; the first who needs it builds that, for all. Where it cannot be built, as without a
network, the first of the given interpreters that has TensorBoard serves. DRUMLINE_TENSORBOARD names one that is to be
taken instead of all that.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence

# Older ones want a setuptools of old times.
REQUIREMENTS = ("tensorboard>=2.21,<3",)
NOT_TO_BE_HAD = 69  # as `run/tensorboard.py` has it

_HAS_IT = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorboard') is None)"


def serve(folder: str, host: str, port: str, scratch: str, root: str, *pythons: str) -> int:
    """Become TensorBoard, which notes in `scratch` that it runs; return an exit code if there is none to become."""
    os.umask(0o077)  # it keeps notes in `scratch`, and an environment may be built
    command = find(root, pythons)
    if not command:
        return NOT_TO_BE_HAD
    words = ["-m", "tensorboard.main", "--logdir", folder, "--host", host, "--port", port]
    # All in one process behind one port: its faster reader is a second program behind another one.
    words += ["--load_fast", "false"]
    os.chdir("/")  # whatever stands in the user's folder is not imported
    _say(f"TensorBoard by {command[0]}")
    try:
        os.execve(command[0], [*command, *words], {**os.environ, "TMPDIR": scratch})
    except OSError as error:
        _say(f"cannot run {command[0]}: {error.strerror}")
    return NOT_TO_BE_HAD


def find(root: str, pythons: Sequence[str]) -> list[str]:
    """The interpreter that has TensorBoard, with its options; nothing if there is none. `root` has the environments."""
    if given := os.environ.get("DRUMLINE_TENSORBOARD"):
        return _having_it([given])
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120
    from drumline.runtime import environment  # noqa: PLC0415 - found only now: this is run as a file, by any Python

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what is half built is removed
    try:
        built = environment.provide(root, os.path.realpath(_base()), REQUIREMENTS)
        lock = environment.use(built)
        if lock is not None:
            os.set_inheritable(lock, True)  # for as long as it serves
            return [f"{built}/bin/python", "-I"]
    except environment.NotBuilt as error:
        _say(str(error))
    _say("looking for TensorBoard where the training runs")
    return _having_it(pythons)


def _base() -> str:
    """The interpreter that ours was made of: whoever has the same shares the environment."""
    return str(getattr(sys, "_base_executable", "") or sys.executable)


def _having_it(pythons: Sequence[str]) -> list[str]:
    """The first of these that has TensorBoard, found out without importing it, which takes seconds."""
    for python in pythons:
        found = shutil.which(python)
        path = os.path.abspath(found) if found else ""  # noqa: PTH100
        if path and subprocess.run([path, "-c", _HAS_IT], cwd="/", check=False).returncode == 0:
            return [path]
    _say(f"no TensorBoard in {', '.join(pythons)}: `pip install tensorboard` where the training runs")
    return []


def _say(text: str) -> None:
    sys.stdout.write(f"drumline: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(serve(*sys.argv[1:]))
