"""Unpack a tar stream that a pod sends; the pod is not trusted.

Nothing is written outside the folder: names and links are resolved beneath it, and hard links and devices are refused.
The size of headers is limited, since tarfile reads them into memory.
"""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path
from typing import IO

from drumline.engine.project.beneath import Beneath, OutsideError, require_short, stays_beneath

_MOST_HEADER_BYTES = 1 << 20  # of one member: long names and other records before its content
_PIECE_BYTES = 1 << 18
_LATEST_SECONDS = 1 << 33  # later times cannot be set


class _BoundedStream:
    """A stream that raises an error after the allowed number of bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = 0

    def allow(self, size: int) -> None:
        """Set the number of bytes that may be read from now on."""
        self._left = size

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise tarfile.ReadError("a header in it is too large")
        return data


def unpack(stream: IO[bytes], folder: Path) -> tuple[str, ...]:
    """Unpack files, folders and links; return the names that are left out: links that lead outside, pipes and devices.

    All names begin with the name of the packed file or folder. Raise TarError for a member that is refused, OSError if
    a file cannot be written. The stream is read to its end.
    """
    bounded = _BoundedStream(stream)
    bounded.allow(_MOST_HEADER_BYTES)
    left_out = []
    with Beneath(folder) as target, tarfile.open(fileobj=bounded, mode="r|", errors="surrogateescape") as archive:  # type: ignore[call-overload]
        while (member := archive.next()) is not None:
            archive.members.clear()  # tarfile would keep all of them
            bounded.allow(member.size + _MOST_HEADER_BYTES)
            try:
                if not _unpack_one(archive, member, target):
                    left_out.append(_path(member))
            except OutsideError as error:
                raise tarfile.TarError(str(error)) from None
            bounded.allow(_MOST_HEADER_BYTES)
    while stream.read(_PIECE_BYTES):  # bytes after the end of the archive
        pass
    return tuple(left_out)


def _unpack_one(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Beneath) -> bool:
    """Write one member; return False if it is left out."""
    path = _path(member)
    require_short(path)
    if member.size < 0:
        raise tarfile.TarError(f"{path!r} has an impossible size")
    if member.isdir():
        target.make_folder(path)
    elif member.issym():
        inner = path.partition("/")[2]
        if not inner or not stays_beneath(inner, member.linkname):
            return False
        target.make_link(path, member.linkname)
    elif member.isreg() and not member.issparse():
        _write(archive, member, target, path)
    elif member.islnk() or member.issparse():
        raise tarfile.TarError(f"{path!r} is a hard link or a sparse file, which are not unpacked")
    else:
        return False
    return True


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Beneath, path: str) -> None:
    content = archive.extractfile(member)
    if content is None:
        raise tarfile.TarError(f"{path!r} has no content")
    mode = 0o777 if member.mode & stat.S_IXUSR else 0o666
    descriptor = target.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        left = member.size
        while piece := content.read(min(left, _PIECE_BYTES)):
            file.write(piece)
            left -= len(piece)
        if left:
            raise tarfile.ReadError("the archive is truncated")
        file.flush()
        seconds = member.mtime if 0 <= member.mtime < _LATEST_SECONDS else 0
        os.utime(descriptor, (seconds, seconds))


def _path(member: tarfile.TarInfo) -> str:
    return member.name.removeprefix("./")
