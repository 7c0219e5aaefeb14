"""Copy files and folders on this machine, as `cp -r` does; the source may come from an untrusted host or pod."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from drumline.engine.project.beneath import Beneath, stays_beneath
from drumline.errors import EngineError, InputError

_PIECE_BYTES = 1 << 20


def copy(source: Path, target: Path, *, trusted: bool) -> tuple[str, ...]:
    """Copy a file or folder into `target` if that is a folder, else to this path; return the paths that were left out.

    Links within a folder are copied as links, and links in the target are not followed. Unless the source is `trusted`,
    links that lead out of it are left out, and InputError is raised for a source that is itself a link. Devices,
    sockets and pipes are left out. Raise EngineError if the source cannot be read or the target cannot be written.
    """
    source = source if source.is_symlink() else source.resolve()
    if source.is_symlink() and not trusted:
        raise refuse_link(source.name)
    if target.is_dir():
        target = target / source.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink() or not source.is_dir():
            shutil.copy2(source, target, follow_symlinks=False)
            return ()
        target.mkdir(exist_ok=True)
        with Beneath(source) as old, Beneath(target) as new:
            return tuple(path for path, known in old.walk() if not _copy_one(old, new, path, known, trusted=trusted))
    except shutil.Error as error:
        raise EngineError(f"cannot copy {source}: {error}") from None
    except OSError as error:
        raise EngineError(f"cannot copy {source} to {error.filename or target}: {error.strerror}") from None


def refuse_link(name: str) -> InputError:
    """Return the error for a requested path that is a link."""
    return InputError(f"{name} is a symbolic link, and is not copied", hint="copy the file or folder that it leads to")


def _copy_one(old: Beneath, new: Beneath, path: str, known: os.stat_result, *, trusted: bool) -> bool:
    """Copy one file, folder or link; return False if it is left out."""
    if stat.S_ISDIR(known.st_mode):
        new.make_folder(path)
        return True
    is_link = stat.S_ISLNK(known.st_mode)
    link = old.readlink(path) if is_link else None
    if not stat.S_ISREG(known.st_mode) and not (link and (trusted or stays_beneath(path, link))):
        return False
    there = new.lstat(path)
    if there and (is_link or not stat.S_ISREG(there.st_mode)):
        new.remove(path)
    if link:
        new.make_link(path, link)
        return True
    with os.fdopen(old.open(path, os.O_RDONLY), "rb") as reading:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(new.open(path, flags, stat.S_IMODE(known.st_mode) & 0o777), "wb") as writing:
            shutil.copyfileobj(reading, writing, _PIECE_BYTES)
            writing.flush()
            os.fchmod(writing.fileno(), stat.S_IMODE(known.st_mode) & 0o777)
            os.utime(writing.fileno(), ns=(known.st_atime_ns, known.st_mtime_ns))
    return True
