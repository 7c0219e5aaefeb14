"""Sockets with a name in a folder, however long the folder's own name is."""

from __future__ import annotations

import os
import socket
from pathlib import Path


class short_name:  # noqa: N801
    """A socket's name may have 107 bytes and a home folder more: name it through its folder's descriptor."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder: int | None = None

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= 100:
            return str(self._path)
        self._folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._folder}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            os.close(self._folder)


def listen(path: Path) -> socket.socket:
    """Listen under this name, for its owner alone; nobody else may be listening there."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with short_name(path) as name:
        listener.bind(name)
    path.chmod(0o600)
    listener.listen(64)
    return listener


def connect(path: Path) -> socket.socket | None:
    """Connect to whoever listens under this name; None if nobody does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with short_name(path) as name:
            connection.connect(name)
    except OSError:
        connection.close()
        return None
    return connection
