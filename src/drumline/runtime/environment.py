"""Build a Python environment once: `environment.py ROOT PYTHON REQUIREMENT…`; whoever wants the same finds it there.

An environment knows its own path, so it is built in its place; a mark that is written last says that it is whole. Who
builds holds its lock alone, also by what he starts; who uses it holds the lock with others. What nobody used for long
goes when another is built. A line `-c REQUIREMENT` only constrains the others.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

if __name__ == "__main__":  # run by its path, and told to look nowhere but in the standard library
    sys.path.append(str(Path(__file__).parents[2]))

from drumline.runtime.install import NotBuilt, install, say
from drumline.runtime.private import make_folder, open_file, write_file

__all__ = [
    "KEEP_SECONDS",
    "MARK",
    "NotBuilt",
    "folder_of",
    "is_ready",
    "kept",
    "last_used",
    "provide",
    "remove_unused",
    "take_lock",
    "use",
]

MARK = "drumline.json"
KEEP_SECONDS = 30 * 86_400.0


def folder_of(root: str, python: str, requirements: Sequence[str]) -> str:
    """The folder of the environment that this interpreter and these requirements make; looks at nothing."""
    machine = os.uname()
    key = json.dumps([1, machine.sysname, machine.machine, python, *requirements])
    first = next((line for line in requirements if not line.startswith("-")), "python")
    last = first.partition(" ")[0].rpartition("/")[2]  # of a URL that has no name
    name = re.split(r"[^A-Za-z0-9._-]", last, maxsplit=1)[0].strip("._-").lower()[:40] or "python"
    return os.path.join(root, f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}")


def is_ready(folder: str) -> bool:
    """Return whether an environment is there and whole, and was built by this user.

    One whose interpreter was uninstalled is not. One that another user has planted would be executed.
    """
    try:
        mark = os.lstat(f"{folder}/{MARK}")
        own = {mark.st_uid, os.lstat(folder).st_uid} == {os.geteuid()}
    except OSError:
        return False
    return own and os.access(f"{folder}/bin/python", os.X_OK)


def use(folder: str) -> int | None:
    """A descriptor that keeps an environment from being removed while any process has it; None if there is none."""
    for _ in range(20):
        if not is_ready(folder):
            return None
        lock = take_lock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if lock is not None and is_ready(folder):
            with suppress(OSError):
                os.utime(lock)
            return lock
        if lock is not None:
            os.close(lock)
        time.sleep(0.005)  # who looks whether it is used holds it for a moment
    return None


def provide(root: str, python: str, requirements: Sequence[str]) -> str:
    """Return the folder of a whole environment, built if it is not there; raise NotBuilt with a sentence.

    Who comes while another builds waits. Its interpreter is `bin/python` in it.
    """
    folder = folder_of(root, python, requirements)
    if is_ready(folder):
        say(f"{folder} is there already")
        return folder
    try:
        make_folder(root)
        lock = take_lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            say(f"{folder} is being built by somebody else; waiting for that")
            lock = take_lock(folder, fcntl.LOCK_EX)
    except OSError as error:
        raise NotBuilt(f"cannot build {folder}: {error.strerror}") from None
    assert lock is not None
    try:
        if is_ready(folder):
            say(f"{folder} is there now")
        else:
            _build(folder, python, requirements, lock)
            os.utime(lock)
    except OSError as error:
        raise NotBuilt(f"cannot build {folder}: {error.strerror}") from None
    finally:
        os.close(lock)
    for removed in remove_unused(root, KEEP_SECONDS):
        say(f"removed {removed}, which nobody used for {KEEP_SECONDS / 86_400:.0f} days")
    return folder


def remove_unused(root: str, older_than_seconds: float) -> Iterator[str]:
    """Remove what nobody uses and nobody used for so long, and what an interrupted build left; say which."""
    for folder in kept(root):
        if is_ready(folder) and time.time() - last_used(folder) < older_than_seconds:
            continue
        with suppress(OSError):  # somebody else's, or a disk that is only read
            lock = take_lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is None:
                continue
            try:
                whole = is_ready(folder)
                _remove(folder, with_lock=True)
            finally:
                os.close(lock)
            if whole:
                yield folder


def kept(root: str) -> list[str]:
    """All folders that are or were to become environments."""
    try:
        names = {name.removesuffix(".lock") for name in os.listdir(root)}
    except OSError:  # nothing was built yet
        return []
    return [os.path.join(root, name) for name in sorted(names) if re.fullmatch(r".+-[0-9a-f]{16}", name)]


def last_used(folder: str) -> float:
    """When somebody began to use it, in seconds of the clock on the wall."""
    try:
        return os.stat(f"{folder}.lock").st_mtime
    except OSError:
        return 0.0


def take_lock(folder: str, how: int) -> int | None:
    """Lock a folder as flock(2) does; None if others have it and nobody is to wait."""
    path = f"{folder}.lock"
    while True:
        lock = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, how)
        except BlockingIOError:
            os.close(lock)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                return lock
        os.close(lock)  # it was removed while we waited


def _remove(folder: str, *, with_lock: bool = False) -> None:
    """Remove an environment, or what was to become one; its lock is ours, and who waits for it sees that it is gone."""
    with suppress(FileNotFoundError):
        os.unlink(f"{folder}/{MARK}")  # first: what is half removed is no environment
    shutil.rmtree(folder, ignore_errors=True)
    if with_lock:
        os.unlink(f"{folder}.lock")


def _build(folder: str, python: str, requirements: Sequence[str], lock: int) -> None:
    began = time.monotonic()
    _remove(folder)
    try:
        os.mkdir(folder, 0o700)
        count = install(folder, python, requirements, lock)
        size = sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(folder) for name in names)
        mark = {"python": python, "requirements": list(requirements), "packages": count, "bytes": size}
        write_file(f"{folder}/{MARK}", json.dumps(mark).encode())
    except BaseException:
        _remove(folder, with_lock=True)
        raise
    say(f"built {folder}: {count} package{'s'[: count != 1]}, {size / 1e6:.0f} MB, in {time.monotonic() - began:.0f} s")


def main(root: str, python: str, *requirements: str) -> int:
    """Provide an environment; an interrupt or TERM leaves nothing of it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    os.umask(0o077)
    try:
        provide(root, python, requirements)
    except NotBuilt as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
