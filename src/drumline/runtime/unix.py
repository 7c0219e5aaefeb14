"""Unix sockets with paths of any length, the process at the other end, and requests with descriptors."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

HEADER = struct.Struct("!I")  # of a request: its length in bytes
LONGEST_REQUEST = 1 << 24  # more than the kernel accepts as an environment


class Peer(NamedTuple):
    """The process at the other end of a connection, and its user."""

    pid: int
    uid: int


class short_name:  # noqa: N801
    """Provides a short path of a socket during the block, by a descriptor of its folder: the limit is 107 bytes."""

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
    """Listen on this path with mode 0600; replace an earlier socket, on which no process must listen any more."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with short_name(path) as name:
        listener.bind(name)
    path.chmod(0o600)
    listener.listen(64)
    return listener


def connect(path: Path, *, waits: bool = True) -> socket.socket | None:
    """Connect to the process that listens on this path; None if there is none.

    Without `waits`, raise BlockingIOError if the queue of connections is full. Raise PermissionError if the process
    belongs to another user, to which no environment may be sent.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    connection.setblocking(waits)
    try:
        with short_name(path) as name:
            connection.connect(name)
    except BlockingIOError:
        connection.close()
        raise
    except OSError:
        connection.close()
        return None
    if not is_trusted(connection):
        connection.close()
        raise PermissionError(errno.EPERM, "the socket belongs to a process of another user", str(path))
    return connection


def is_trusted(connection: socket.socket) -> bool:
    """Return whether the process at the other end belongs to this user or to root."""
    return peer_of(connection).uid in (os.geteuid(), 0)


def peer_of(connection: socket.socket) -> Peer:
    """Return the process at the other end of a connection."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Peer(pid, uid)


def send_request(connection: socket.socket, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send a request with open descriptors, which are attached to the header."""
    data = json.dumps(request).encode()
    socket.send_fds(connection, [HEADER.pack(len(data))], list(descriptors))
    connection.sendall(data)


def receive_request(connection: socket.socket, most_descriptors: int) -> tuple[dict[str, Any], list[int]]:
    """Read one request and its descriptors; raise ConnectionError at the end of the connection.

    Raise ValueError, TypeError or RecursionError for a malformed request.
    """
    data, descriptors, _, _ = socket.recv_fds(connection, HEADER.size, most_descriptors)
    try:
        (length,) = HEADER.unpack(data + _exactly(connection, HEADER.size - len(data)))
        if length > LONGEST_REQUEST:
            raise ValueError(f"a request of {length} bytes")
        request: dict[str, Any] = json.loads(_exactly(connection, length))
        if not isinstance(request, dict):
            raise TypeError("a request that is not a mapping")
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return request, list(descriptors)


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = connection.recv(length - len(data))
        if not piece:
            raise ConnectionError
        data += piece
    return data
