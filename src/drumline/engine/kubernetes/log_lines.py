"""Parse a container's log as the kubelet sends it, with times, and find the lines that are new. Pure.

A cursor is a position in the log. The kubelet resumes at a whole second, so some lines are sent again: they are skipped
up to the line at the cursor, known by its time in nanoseconds. If the kubelet has rotated the file, that line and all
before it are gone, and no line is sent again.
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from functools import lru_cache

from drumline.engine.kubernetes.answer_fields import text
from drumline.record import Record

_SECOND_NS = 1_000_000_000
# stdout and stderr are written by two threads: lines may not be in the order of their times.
_DISORDER_NS = 50_000_000
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$")
_LONGEST_TIME = 36
_LONGEST_ERROR = 4096
_LATEST_NS = 1 << 63  # the most that a stored cursor can hold: the year 2262
_MOST_HELD_BYTES = 4 << 20
_PIECE_BYTES = 128  # memory of a piece beside its data


class Cursor(Record):
    """A position in a log: a byte of a line."""

    size: int = 0  # bytes of all lines up to here
    at_ns: int = 0  # when the last line began; 0 if there is none
    nth: int = 0  # its number among the lines with this time
    in_line: int = 0  # bytes of the last line, without the newline
    is_open: bool = False  # the last line has no newline yet

    @property
    def since(self) -> str:
        """The second in which the last line began, in RFC 3339; empty at the beginning."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.at_ns // _SECOND_NS)) if self.at_ns else ""

    def after(self, piece: LogPiece) -> Cursor:
        """Return the position after this piece."""
        size = self.size + len(piece.data)
        is_open = not piece.data.endswith(b"\n")
        content = len(piece.data) if is_open else len(piece.data) - 1
        if not piece.begins:
            return Cursor(size, self.at_ns, self.nth, self.in_line + content, is_open)
        nth = self.nth + 1 if piece.at_ns == self.at_ns else 1
        return Cursor(size, piece.at_ns, nth, content, is_open)


class LogPiece(Record):
    """A line or a part of one; it ends with a newline if the line is complete."""

    at_ns: int  # the time of the line
    data: bytes
    begins: bool = True


class LogStream:
    """Parses the bytes of one connection; returns the pieces after a cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self.kubelet_error = ""  # an error message of the kubelet, after all lines
        self.has_gap = False  # the cursor's line is gone, and so are the lines between it and the first piece
        self._cursor = cursor
        self._rest = b""  # the beginning of a line, without its whole time
        self._at_ns = 0  # of the incomplete line
        self._within = False
        self._seeks = bool(cursor.at_ns)
        self._same = 0
        self._held: list[LogPiece] = []  # new if the cursor's line is gone
        self._held_bytes = 0
        self._skip = 0

    def feed(self, chunk: bytes) -> list[LogPiece]:
        """Return the new pieces in these bytes."""
        return self._align(self._cut(chunk))

    def end(self) -> list[LogPiece]:
        """Return the pieces that were held back; called when the kubelet has ended the stream."""
        if self._rest and not self._within:
            self._record_error(self._rest)
        if not self._seeks:
            return []
        self._seeks = False
        self.has_gap = bool(self._held)
        held, self._held = self._held, []
        return held

    def _cut(self, chunk: bytes) -> list[LogPiece]:
        *lines, last = (self._rest + chunk).split(b"\n")
        self._rest = b""
        pieces = []
        for line in lines:
            if self._within:
                pieces.append(LogPiece(self._at_ns, line + b"\n", begins=False))
                self._within = False
                continue
            text, space, content = line.partition(b" ")
            at_ns = parse_time(text) if space else None
            if at_ns is None:
                self._record_error(line)
            else:
                pieces.append(LogPiece(at_ns, content + b"\n"))
                self.kubelet_error = ""  # it was the end of an earlier line
        if self._within:
            if last:
                pieces.append(LogPiece(self._at_ns, last, begins=False))
        elif last:
            pieces += self._begin(last)
        return pieces

    def _begin(self, last: bytes) -> list[LogPiece]:
        """Return the first part of an incomplete line."""
        text, _, content = last.partition(b" ")
        at_ns = parse_time(text) if content else None
        if at_ns is None:
            self._rest = last[:_LONGEST_ERROR] if len(last) > _LONGEST_TIME else last
            return []
        self._at_ns, self._within = at_ns, True
        return [LogPiece(at_ns, content)]

    def _record_error(self, line: bytes) -> None:
        """Record a line without a time, an error of the kubelet such as `unable to retrieve container logs`."""
        self.kubelet_error = text(line[:_LONGEST_ERROR].decode(errors="replace")) or self.kubelet_error

    def _align(self, pieces: list[LogPiece]) -> list[LogPiece]:
        if not self._seeks and not self._skip:
            return pieces
        new: list[LogPiece] = []
        for piece in pieces:
            if self._seeks and not self._seek(piece):
                continue
            if self._held:
                new += self._held
                self._held = []
            if not self._skip:
                new.append(piece)
                continue
            rest = piece.data[self._skip :]
            self._skip -= len(piece.data) - len(rest)
            if rest:
                new.append(LogPiece(piece.at_ns, rest, begins=False))
        return new

    def _seek(self, piece: LogPiece) -> bool:
        """Return whether this is the cursor's line or certainly after it; a piece that may be after it is held back."""
        cursor = self._cursor
        if piece.begins and piece.at_ns == cursor.at_ns:
            self._same += 1
            if self._same == cursor.nth:
                self._seeks, self._held = False, []
                self._skip = cursor.in_line + (not cursor.is_open)
                return True
        elif piece.begins and piece.at_ns > cursor.at_ns + _DISORDER_NS:
            self._seeks, self.has_gap = False, True
            return True
        if piece.at_ns > cursor.at_ns:
            if self._held_bytes > _MOST_HELD_BYTES:  # too much for disorder: the cursor's line is gone
                self._seeks, self.has_gap = False, True
                return True
            self._held.append(piece)
            self._held_bytes += len(piece.data) + _PIECE_BYTES
        return False


def parse_time(text: bytes) -> int | None:
    """Return `2026-11-15T21:07:06.444619436Z` as nanoseconds since 1970; None if it is not a time."""
    found = _TIME.match(text)
    if not found:
        return None
    seconds, fraction, zone = found.groups()
    whole = _whole_seconds(seconds, zone)
    at_ns = 0 if whole is None else whole * _SECOND_NS + int((fraction or b"").ljust(9, b"0"))
    return at_ns if 0 < at_ns < _LATEST_NS else None


@lru_cache(maxsize=64)
def _whole_seconds(text: bytes, zone: bytes) -> int | None:
    try:
        return int(datetime.fromisoformat(f"{text.decode()}{zone.decode()}").timestamp())
    except (ValueError, OverflowError):
        return None
