"""Make a data folder once: `prepare.py FOLDER PARTIAL COMMAND…`, where the command fills PARTIAL.

The folder appears complete or not at all. Files that a failed command leaves in PARTIAL stay, so that the next try may
continue from them. If several runs need the same folder, one makes it and the others wait.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Sequence


def prepare(folder: str, partial: str, command: Sequence[str]) -> int:
    """Make the folder unless it exists; return the exit code of the command.

    If a signal ends the command, the same signal ends this process.
    """
    if _exists(folder):
        return 0
    try:
        os.makedirs(os.path.dirname(folder) or ".", exist_ok=True)  # noqa: PTH103, PTH120
        lock = os.open(f"{partial}.lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        if not _take(lock):
            _print(f"{folder} is being prepared by another run; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if _exists(folder):
            return 0
        os.makedirs(partial, exist_ok=True)  # noqa: PTH103
    except OSError as error:
        _print(f"cannot prepare {folder}: {error.strerror}")
        return 1
    if code := _run(command):
        return code
    try:
        os.rename(partial, folder)  # noqa: PTH104
        os.unlink(f"{partial}.lock")  # noqa: PTH108  # processes that wait for the lock find the folder
    except OSError as error:
        _print(f"cannot move {partial} to {folder}: {error.strerror}")
        return 1
    _print(f"prepared {folder}")
    return 0


def _exists(folder: str) -> bool:
    exists = os.path.lexists(folder)
    if exists:
        _print(f"{folder} exists")
    return exists


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _run(command: Sequence[str]) -> int:
    try:
        pid = os.posix_spawnp(command[0], list(command), os.environ)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        _print(f"cannot run {command[0]}: {'no such command' if missing else error.strerror}")
        return 127 if missing else 126
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return os.waitstatus_to_exitcode(status)


def _print(text: str) -> None:
    sys.stdout.write(f"drumline: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(prepare(sys.argv[1], sys.argv[2], sys.argv[3:]))
