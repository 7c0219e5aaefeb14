"""Build a Python environment once: `environment.py ROOT PYTHON REQUIREMENT…`; later runs reuse it.

An environment contains its own path, so it is built in place; a marker file that is written last shows that it is
complete. A builder and the processes that it starts hold an exclusive lock; processes that use an environment hold a
shared lock. Environments that were not used for a long time are removed when another is built. `-c REQUIREMENT`
only constrains the others.
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

if __name__ == "__main__":  # run by its path with -IS: only the standard library is on sys.path
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
    """Return the folder of the environment with this interpreter and these requirements; read no files."""
    machine = os.uname()
    key = json.dumps([1, machine.sysname, machine.machine, python, *requirements])
    first = next((line for line in requirements if not line.startswith("-")), "python")
    last = first.partition(" ")[0].rpartition("/")[2]  # for a URL without a name
    name = re.split(r"[^A-Za-z0-9._-]", last, maxsplit=1)[0].strip("._-").lower()[:40] or "python"
    return os.path.join(root, f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}")


def is_ready(folder: str) -> bool:
    """Return whether an environment is complete, works, and was built by this user.

    An environment of another user is not used, since its code would be executed.
    """
    try:
        mark = os.lstat(f"{folder}/{MARK}")
        own = {mark.st_uid, os.lstat(folder).st_uid} == {os.geteuid()}
    except OSError:
        return False
    return own and os.access(f"{folder}/bin/python", os.X_OK)


def use(folder: str) -> int | None:
    """Return a descriptor that protects an environment from removal while it is open; None if it is not complete."""
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
        time.sleep(0.005)  # another process may hold it for a moment to check whether it is used
    return None


def provide(root: str, python: str, requirements: Sequence[str]) -> str:
    """Return the folder of an environment, built if necessary; raise NotBuilt if that fails.

    If another process is building it, wait. The interpreter of the environment is `bin/python` in the folder.
    """
    folder = folder_of(root, python, requirements)
    if is_ready(folder):
        say(f"{folder} exists")
        return folder
    try:
        make_folder(root)
        lock = take_lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            say(f"{folder} is being built by another process; waiting for it")
            lock = take_lock(folder, fcntl.LOCK_EX)
    except OSError as error:
        raise NotBuilt(f"cannot build {folder}: {error.strerror}") from None
    assert lock is not None
    try:
        if is_ready(folder):
            say(f"{folder} is ready now")
        else:
            _build(folder, python, requirements, lock)
            os.utime(lock)
    except OSError as error:
        raise NotBuilt(f"cannot build {folder}: {error.strerror}") from None
    finally:
        os.close(lock)
    for removed in remove_unused(root, KEEP_SECONDS):
        say(f"removed {removed}, which was not used for {KEEP_SECONDS / 86_400:.0f} days")
    return folder


def remove_unused(root: str, older_than_seconds: float) -> Iterator[str]:
    """Remove environments that were not used for this time, and incomplete ones; yield the complete ones."""
    for folder in kept(root):
        if is_ready(folder) and time.time() - last_used(folder) < older_than_seconds:
            continue
        with suppress(OSError):  # another user's folder, or a read-only disk
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
    """Return all folders of environments, including incomplete ones."""
    try:
        names = {name.removesuffix(".lock") for name in os.listdir(root)}
    except OSError:  # nothing was built yet
        return []
    return [os.path.join(root, name) for name in sorted(names) if re.fullmatch(r".+-[0-9a-f]{16}", name)]


def last_used(folder: str) -> float:
    """Return when the last use of an environment began, as a Unix time in seconds; 0 if it was never used."""
    try:
        return os.stat(f"{folder}.lock").st_mtime
    except OSError:
        return 0.0


def take_lock(folder: str, how: int) -> int | None:
    """Lock a folder with flock(2) and return the descriptor; None if it is locked and `how` has LOCK_NB."""
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
        os.close(lock)  # the file was removed meanwhile


def _remove(folder: str, *, with_lock: bool = False) -> None:
    """Remove an environment, complete or not; this process holds its lock."""
    with suppress(FileNotFoundError):
        os.unlink(f"{folder}/{MARK}")  # first, so that an interrupted removal leaves no complete environment
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
    """Provide an environment and return the exit code; an interrupt or TERM removes an incomplete environment."""
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
