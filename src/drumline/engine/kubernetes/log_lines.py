"""Lines of a container's log as the kubelet sends them, each behind its time, and what is new of them. Pure.

A cursor says how far somebody has come. The kubelet goes on from a whole second, so some lines come again: they are
passed over up to the one that the cursor names, by its time to the nanosecond. If that one is gone, since the kubelet
has begun a new file, then so is all that came before it, and nothing comes again.
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from functools import lru_cache

from drumline.engine.kubernetes.answer_fields import text
from drumline.record import Record

_SECOND_NS = 1_000_000_000
# A container's two streams are written by two threads: lines may be in the file in another order than their times.
_DISORDER_NS = 50_000_000
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$")
_LONGEST_TIME = 36
_LONGEST_REMARK = 4096
_LATEST_NS = 1 << 63  # a cursor has room for no more, and a date after 2262 is no date of a log
_MOST_HELD_BYTES = 4 << 20
_PIECE_BYTES = 128  # that a piece takes beside its data


class Cursor(Record):
    """How much of a log somebody has: up to which byte of which line."""

    size: int = 0  # of all lines together
    at_ns: int = 0  # when the last line began; 0 if there is none
    nth: int = 0  # which one it is of those that began then
    in_line: int = 0  # bytes of it, without the newline
    is_open: bool = False  # it may go on

    @property
    def since(self) -> str:
        """The second in which the last line began, as the kubelet wants to hear it; nothing for the very beginning."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.at_ns // _SECOND_NS)) if self.at_ns else ""

    def after(self, piece: LogPiece) -> Cursor:
        """How far one is with this as well."""
        size = self.size + len(piece.data)
        is_open = not piece.data.endswith(b"\n")
        content = len(piece.data) if is_open else len(piece.data) - 1
        if not piece.begins:
            return Cursor(size, self.at_ns, self.nth, self.in_line + content, is_open)
        nth = self.nth + 1 if piece.at_ns == self.at_ns else 1
        return Cursor(size, piece.at_ns, nth, content, is_open)


class LogPiece(Record):
    """A line, or a part of one that is longer than what came; it ends with its newline if it has ended."""

    at_ns: int  # when it began
    data: bytes
    begins: bool = True


class LogStream:
    """What one connection brings; says what of it is new behind a cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self.remark = ""  # what the kubelet itself had to say, behind all lines
        self.has_gap = False  # the cursor's line was gone: what came between it and the first piece is not to be had
        self._cursor = cursor
        self._rest = b""  # of which it is not known yet what it is
        self._at_ns = 0  # of the line that goes on
        self._within = False
        self._seeks = bool(cursor.at_ns)
        self._same = 0
        self._held: list[LogPiece] = []  # new, if the cursor's line is gone
        self._held_bytes = 0
        self._skip = 0

    def feed(self, chunk: bytes) -> list[LogPiece]:
        """Return what is new in these bytes."""
        return self._align(self._cut(chunk))

    def end(self) -> list[LogPiece]:
        """Return what was held back; the kubelet has said all that it has, and was not interrupted."""
        if self._rest and not self._within:
            self._remark(self._rest)
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
                self._remark(line)
            else:
                pieces.append(LogPiece(at_ns, content + b"\n"))
                self.remark = ""  # it was the end of a line that began before
        if self._within:
            if last:
                pieces.append(LogPiece(self._at_ns, last, begins=False))
        elif last:
            pieces += self._begin(last)
        return pieces

    def _begin(self, last: bytes) -> list[LogPiece]:
        """The first part of a line whose end has not come."""
        text, _, content = last.partition(b" ")
        at_ns = parse_time(text) if content else None
        if at_ns is None:
            self._rest = last[:_LONGEST_REMARK] if len(last) > _LONGEST_TIME else last
            return []
        self._at_ns, self._within = at_ns, True
        return [LogPiece(at_ns, content)]

    def _remark(self, line: bytes) -> None:
        """What has no time is no line of the log: `unable to retrieve container logs for …`."""
        self.remark = text(line[:_LONGEST_REMARK].decode(errors="replace")) or self.remark

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
        """Whether this is the cursor's line, or certainly behind it; what may be is held."""
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
            if self._held_bytes > _MOST_HELD_BYTES:  # no disorder explains so much: the cursor's line is gone
                self._seeks, self.has_gap = False, True
                return True
            self._held.append(piece)
            self._held_bytes += len(piece.data) + _PIECE_BYTES
        return False


def parse_time(text: bytes) -> int | None:
    """`2026-11-15T21:07:06.444619436Z` as nanoseconds since 1970; None for what is no time of a log."""
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
