"""The local copy of a pod's log, with its cursor and time marks."""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path

from drumline.engine.kubernetes.log_lines import Cursor, LogPiece
from drumline.run.traces import CURSOR, MARK_FORMAT, MARKS

_MARK = struct.Struct(MARK_FORMAT)
_CURSOR = struct.Struct("<QQQQ?I")  # its fields and a checksum
_MOMENT_NS = 250_000_000  # lines within this time share a mark


class LogFile:
    """Appends new pieces to a log and stores the cursor.

    The log is written before its cursor: bytes that a supervisor appended before it was killed, without storing the
    cursor, are written again at the same offset. Marks are the times at which the pod wrote the lines, with offsets.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        for folder in (path.parent.parent.parent, path.parent.parent, path.parent):
            folder.mkdir(exist_ok=True, mode=0o700)
        self.cursor = read_cursor(path.parent / CURSOR)
        self._marked_ns = 0

    def append(self, pieces: list[LogPiece], *, has_gap: bool = False) -> None:
        """Append pieces; raise OSError if that fails, after which the same pieces may be appended again.

        With `has_gap` they are appended to the end of the file instead of at the cursor.
        """
        if not pieces:
            return
        fresh = 0 if self.cursor.at_ns else os.O_TRUNC
        log = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | fresh, 0o600)
        try:
            cursor = self.cursor.replace(size=os.fstat(log).st_size) if has_gap else self.cursor
            _write(log, b"".join([piece.data for piece in pieces]), cursor.size)
        finally:
            os.close(log)
        marks = []
        for piece in pieces:
            if piece.begins and self._marked_ns and piece.at_ns // _MOMENT_NS > self._marked_ns // _MOMENT_NS:
                marks.append((self._marked_ns, cursor.size))
            self._marked_ns = max(self._marked_ns, piece.at_ns)
            cursor = cursor.after(piece)
        marks.append((self._marked_ns, cursor.size))
        self._mark(marks)
        write_cursor(self._path.parent / CURSOR, cursor)
        self.cursor = cursor

    def _mark(self, marks: list[tuple[int, int]]) -> None:
        data = b"".join([_MARK.pack(at_ns / 1e9, size) for at_ns, size in marks])
        with suppress(OSError):  # lines without a mark get the time of the next one
            file = os.open(self._path.parent / MARKS, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _write(file, data, os.fstat(file).st_size // _MARK.size * _MARK.size)
            finally:
                os.close(file)


def read_cursor(path: Path) -> Cursor:
    """Return the stored cursor; the beginning if there is none or it is damaged."""
    try:
        *fields, sum_ = _CURSOR.unpack(path.read_bytes())
    except (OSError, struct.error):
        return Cursor()
    cursor = Cursor(*fields)
    return cursor if sum_ == _sum(cursor) else Cursor()


def write_cursor(path: Path, cursor: Cursor) -> None:
    """Store the cursor in one write."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _write(file, _pack(cursor, _sum(cursor)), 0)
    finally:
        os.close(file)


def _sum(cursor: Cursor) -> int:
    return zlib.crc32(_pack(cursor, 0))


def _pack(cursor: Cursor, sum_: int) -> bytes:
    return _CURSOR.pack(cursor.size, cursor.at_ns, cursor.nth, cursor.in_line, cursor.is_open, sum_)


def _write(file: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
