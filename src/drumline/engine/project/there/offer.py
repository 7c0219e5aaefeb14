"""Offer what a run has written on a host: what there is, and pieces of files that have not changed since.

It reads a request, a line of JSON, and answers with another, behind which the pieces follow. Paths are relative to the
folder in which the asked-for thing lies.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from drumline.engine.project.there.beneath import Beneath

MARK = b"\n--drumline--\n"  # in front of the answer: a login script may have said something before


def list_all(base: str, name: str, young_seconds: float) -> Iterator[list[object]]:
    """What is there: path, kind, size, time, whether it is executable, a link's target, whether it is just written."""
    now = time.time_ns()
    todo = [name]
    while todo:
        path = todo.pop()
        full = os.path.join(base, path)
        with suppress(FileNotFoundError):  # it has gone since
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
    """Return a piece of a file; None if it is another by now. With a length below 0 so much at most, whatever it is."""
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


def serve(request: dict[str, Any]) -> tuple[dict[str, object], list[bytes]]:
    """The answer, and what follows it."""
    path = os.path.normpath(os.path.join(os.path.expanduser(request["folder"]), request["path"]))
    base, name = (path, "") if request["path"] in ("", ".") else os.path.split(path)
    if "parts" in request:
        with Beneath(base) as folder:
            found = [_read_part(folder, *part) for part in request["parts"]]
        lengths = [-1 if data is None else len(data) for data in found]
        return {"lengths": lengths}, [data for data in found if data]
    if not os.path.lexists(path):
        return {"absent": True, "path": path}, []
    return {"absent": False, "path": path, "entries": list(list_all(base, name, request["young_seconds"]))}, []


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.buffer.readline())
    data: list[bytes] = []
    try:
        answer, data = serve(request)
    except OSError as error:
        answer = {"error": error.strerror, "errno": error.errno, "path": error.filename or request["folder"]}
    sys.stdout.buffer.write(MARK + json.dumps(answer).encode() + b"\n" + b"".join(data))
