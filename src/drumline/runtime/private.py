"""Folders and files with mode 0700 and 0600, whatever the umask; symbolic links are not followed."""

# Training scripts import this, and `pathlib` costs them time.
# ruff: noqa: PTH102, PTH105, PTH108, PTH112, PTH118, PTH120

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
# Errors of a path that is a link, a folder, a socket or a pipe instead of a regular file.
NOT_REGULAR = (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EINVAL)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder and its missing parents, each with mode 0700; leave those that exist as they are.

    `os.makedirs` gives its mode to the last folder only. Raise OSError if a part of the path is no folder.
    """
    try:
        os.mkdir(path, _FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        parent = os.path.dirname(path)
        if parent in ("", os.fspath(path)):
            raise
        make_folder(parent)
        with suppress(FileExistsError):  # another process was faster
            os.mkdir(path, _FOLDER_MODE)


def open_file(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file and return its descriptor; one that is created gets mode 0600.

    Raise OSError with ELOOP if it is a symbolic link, and with another of `NOT_REGULAR` if it is no regular file.
    """
    file = open_regular(path, flags | os.O_NOFOLLOW)
    os.set_blocking(file, True)  # the flag belongs to the file, which may become the stdout of a replica
    return file


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the content of a regular file, up to `most` bytes; raise OSError if it is anything else."""
    with open(path, "rb", opener=open_regular) as file:
        return file.read(most)


def open_regular(path: str | os.PathLike[str], flags: int) -> int:
    """Open a regular file, for `open(..., opener=open_regular)`; raise OSError if it is anything else.

    Opening a pipe in its place would block, and reading a device such as /dev/zero would never end.
    """
    file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, _FILE_MODE)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))


def write_file(path: str | os.PathLike[str], data: bytes, *, durable: bool = False) -> None:
    """Replace a file as a whole, with mode 0600; raise OSError and leave the old one if that fails.

    A reader sees either the old content or the new; with `durable` this is also true after a power loss. Only one
    process at a time may write the file.
    """
    folder, name = os.path.split(os.fspath(path))
    temporary = os.path.join(folder, f".{name}.new")
    with suppress(FileNotFoundError):
        os.unlink(temporary)  # left by a killed writer, or made by another user
    try:
        with os.fdopen(open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as stream:
            stream.write(data)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
