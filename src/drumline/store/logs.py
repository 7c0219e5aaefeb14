"""Read logs with times: the raw output of a replica, divided at the marks that the supervisor wrote."""

from __future__ import annotations

import os
import re
import stat
import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from drumline.record import Record
from drumline.run.traces import LOG, MARK_FORMAT, MARKS
from drumline.runtime.private import open_regular

MARK = struct.Struct(MARK_FORMAT)
LONGEST_LINE = 1 << 20  # bytes; a longer line is divided
READ_BYTES = 1 << 22
LONGEST_BAR = 1 << 22  # bytes of all states of one progress bar; the lines above a longer one are not read
_DRAWN_OVER = re.compile(rb"[^\r\n]*\r(?!\n)")  # the end of a state that is overwritten
_LAST_MARKS = 1 << 12
_MOST_MARKS = 1 << 22  # marks that are read at once; the supervisor writes ten a second at most
_LATEST = 1e11  # a time beyond this is damage


class Block(Record):
    """Complete lines with the same time."""

    at: float  # UTC, seconds
    exact: bool  # false if the lines were written at an unknown time before `at`
    data: bytes


class LogReader:
    """Reads one log from its start; each call of `read` returns the new lines."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / LOG
        self._marks_file = folder / MARKS
        self._offset = 0  # number of bytes that were read
        self._rest = b""  # the incomplete last line that was read
        self._marks: deque[tuple[float, int]] = deque()
        self._marks_offset = 0

    @property
    def unfinished(self) -> bytes:
        """Return the incomplete last line, such as a prompt or a progress bar."""
        return self._rest

    def read(self, *, until: float, ended: bool = False, size: int = READ_BYTES) -> list[Block]:
        """Return the new lines, about `size` bytes at most; `until` is the time of lines that have no mark yet.

        With `ended` the log is complete, and its last line is returned even without a newline. An empty result means
        that there are no more lines now.
        """
        start = self._offset - len(self._rest)
        data = self._read_lines(size)
        whole = len(data) if ended and self._is_at_end() else data.rfind(b"\n") + 1
        if not whole and len(data) >= LONGEST_LINE:
            whole = len(data)
        self._rest = data[whole:]
        return self._cut(data[:whole], start, until) if whole else []

    def _read_lines(self, size: int) -> bytes:
        """Read until there is a complete line, a line that is too long, or the end of the file."""
        data = self._rest
        try:
            with open(self._log, "rb", opener=open_regular) as log:
                log.seek(self._offset)
                while more := log.read(size):
                    data += more
                    if b"\n" in more or len(data) >= LONGEST_LINE:
                        break
                self._offset = log.tell()
        except OSError:
            pass
        return data

    @property
    def has_more(self) -> bool:
        """Return whether the file has bytes that were not read."""
        return not self._is_at_end()

    def _is_at_end(self) -> bool:
        try:
            found = self._log.stat()
        except OSError:
            return True
        return not stat.S_ISREG(found.st_mode) or found.st_size <= self._offset

    def _cut(self, data: bytes, start: int, until: float) -> list[Block]:
        """Divide complete lines at the marks between them."""
        self._read_marks()
        blocks: list[Block] = []
        done = 0
        while done < len(data):
            while self._marks and self._marks[0][1] <= start + done:
                self._marks.popleft()
            if not self._marks:
                blocks.append(Block(until, True, data[done:]))
                break
            at, size = self._marks[0]
            end = data.find(b"\n", max(done, size - start - 1)) + 1 or len(data)
            # A line that was incomplete at the mark gets the time of the next mark.
            if end > size - start and (before := data.rfind(b"\n", done, max(done, size - start)) + 1) > done:
                end = before
            blocks.append(Block(abs(at), at >= 0, data[done:end]))
            done = end
        return blocks

    def _read_marks(self) -> None:
        try:
            with open(self._marks_file, "rb", opener=open_regular) as marks:
                marks.seek(self._marks_offset)
                data = marks.read(_MOST_MARKS * MARK.size)
        except OSError:
            return
        whole = len(data) - len(data) % MARK.size
        self._marks.extend((at, size) for at, size in MARK.iter_unpack(data[:whole]) if -_LATEST < at < _LATEST)
        self._marks_offset += whole


def read_end(path: Path, size: int) -> tuple[bytes, int]:
    """Return the last `size` bytes of a log, and their offset; empty and 0 if it cannot be read."""
    try:
        with open(path, "rb", opener=open_regular) as log:
            start = log.seek(max(0, log.seek(0, os.SEEK_END) - size))
            return log.read(size), start
    except OSError:
        return b"", 0


def read_marks(folder: Path, most: int) -> tuple[list[tuple[float, int]], bool]:
    """Return the last marks of a log, at most `most`, and whether these are all of its marks."""
    data, start = read_end(folder / MARKS, most * MARK.size)
    whole = data[: len(data) - len(data) % MARK.size]
    return [(at, size) for at, size in MARK.iter_unpack(whole) if abs(at) < _LATEST], start == 0


def times_of(folder: Path, offsets: Iterable[int], *, most: int = _LAST_MARKS) -> list[float | None]:
    """Return the times (UTC, seconds) at which these bytes of a log were written, according to its last marks.

    A time that is not known, or not exact, is None.
    """
    marks, are_all = read_marks(folder, most)
    sizes = [size for _, size in marks]
    places = [bisect_right(sizes, offset) for offset in offsets]
    return [
        marks[place][0] if place < len(marks) and (place > 0 or are_all) and marks[place][0] > 0 else None
        for place in places
    ]


def written_by(folder: Path, offset: int, *, exactly: bool = True) -> float | None:
    """Return when this byte of a log was written (UTC, seconds), according to all its marks.

    Return None if that is not known; with `exactly`, also if it is not exact.
    """
    try:
        with open(folder / MARKS, "rb", opener=open_regular) as marks:
            low, high = 0, marks.seek(0, os.SEEK_END) // MARK.size
            at: float | None = None
            while low < high:
                middle = (low + high) // 2
                marks.seek(middle * MARK.size)
                when, size = MARK.unpack(marks.read(MARK.size))
                if size > offset:
                    at, high = when, middle
                else:
                    low = middle + 1
    except (OSError, struct.error):
        return None
    if at is None or abs(at) > _LATEST or (exactly and at < 0):
        return None
    return abs(at)


def read_tail(path: Path, size: int) -> tuple[bytes, bool]:
    """Return the end of a log, and whether it may begin within a line.

    If a progress bar has been drawn many times on one line, its old states are left out and the lines above it are
    included, since they name its epoch.
    """
    try:
        with open(path, "rb", opener=open_regular) as log:
            start = max(0, log.seek(0, os.SEEK_END) - size)
            log.seek(start)
            tail = log.read(size)
            state = _DRAWN_OVER.match(tail) if start else None
            if not state:
                return tail, start > 0
            end, above = start, b""
            while end > max(0, start - LONGEST_BAR) and b"\n" not in above:
                log.seek(max(0, end - size))
                above = log.read(end - log.tell())
                end -= len(above)
            above = above[: above.rfind(b"\n") + 1]
            return above + tail[state.end() :] if above else tail, end > 0 or not above
    except OSError:
        return b"", False
