"""The verb `offer`: list the output of a run on this host, or send pieces of listed files that have not changed.

The paths in a list are relative to the requested folder; if one `path` in it was requested, to the parent of that path.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from drumline.engine.project.beneath import Beneath


def _list(base: str, name: str, young_seconds: float) -> Iterator[list[object]]:
    """Yield the values of a `RemoteEntry` for each folder, file and link: times in ns, sizes in bytes."""
    now = time.time_ns()
    todo = [name]
    while todo:
        path = todo.pop()
        full = os.path.join(base, path)
        with suppress(FileNotFoundError):  # removed since it was listed
            known = os.lstat(full)
            mode, young = known.st_mode, abs(now - known.st_mtime_ns) < young_seconds * 1e9
            if stat.S_ISDIR(mode):
                todo += [os.path.join(path, each) for each in os.listdir(full)]
                if path:
                    yield [path, "folder", 0, known.st_mtime_ns, False, "", young]
            elif stat.S_ISLNK(mode):
                yield [path, "link", 0, known.st_mtime_ns, False, os.readlink(full), young]
            elif stat.S_ISREG(mode):
                executable = bool(mode & stat.S_IXUSR)
                yield [path, "file", known.st_size, known.st_mtime_ns, executable, "", young]


def _read_part(
    folder: Beneath, path: str, offset: int, length: int, size: int, mtime_ns: int, may_grow: bool
) -> bytes | None:
    """Return a piece of a file; None if the file has changed or cannot be opened.

    With a negative length, return at most `-length` bytes, even of a file that has changed.
    """
    try:
        descriptor = folder.open(path, os.O_RDONLY)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        file.seek(offset)
        data = file.read(abs(length))
        known = os.fstat(file.fileno())
    if length < 0:
        return data
    is_same = (known.st_size, known.st_mtime_ns) == (size, mtime_ns) or (may_grow and known.st_size >= size)
    return data if is_same and len(data) == length else None


def offer(request: Mapping[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the list of a folder, or the requested `parts` with their lengths: -1 for a file that has changed."""
    del data
    path = os.path.normpath(os.path.join(os.path.expanduser(request["folder"]), request["path"]))
    base, name = (path, "") if request["path"] in ("", ".") else os.path.split(path)
    if "parts" in request:
        with Beneath(base) as folder:
            found = [_read_part(folder, *part) for part in request["parts"]]
        lengths = [-1 if part is None else len(part) for part in found]
        return {"lengths": lengths}, b"".join(part for part in found if part)
    if not os.path.lexists(path):
        return {"absent": True, "path": path}, b""
    return {"absent": False, "path": path, "entries": list(_list(base, name, request["young_seconds"]))}, b""
