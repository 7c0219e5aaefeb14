"""Parse stacks of threads as py-spy and Python's fault handler print them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from drumline.record import Record

_SPY_THREAD = re.compile(r'Thread (?:0x)?[0-9A-Fa-f]+ \([^)]*\)(?:: "(?P<name>.*)")?')
_OWN_THREAD = re.compile(r"(?:Current t|T)hread 0x[0-9a-f]+ .*\(most recent call first\):")
_OWN_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d{1,9}) in (?P<name>.*)')
_LONGEST = 4000  # characters of a line; a longer one has no known format


class Frame(Record):
    """A function that a thread executes, with its file and line; native code has no line."""

    name: str
    file: str
    line: int | None = None

    @property
    def is_native(self) -> bool:
        """Return whether the function is compiled code."""
        return self.line is None


class Thread(Record):
    """The frames of a thread, innermost first."""

    frames: tuple[Frame, ...]
    name: str = ""


def read_threads(text: str) -> list[Thread]:
    """Return all threads in a text, in the same order; other lines are ignored."""
    return list(_threads(text))


def main_thread(text: str) -> Thread | None:
    """Return the main thread of the first process; None if there are no threads.

    py-spy prints its name; the fault handler prints it last.
    """
    process = re.split(r"(?m)^Process \d+: .*$", text, maxsplit=2)
    threads = read_threads(process[1] if len(process) > 1 else text)
    named = (thread for thread in threads if thread.name == "MainThread")
    return next(named, threads[-1] if threads else None)


def _threads(text: str) -> Iterator[Thread]:
    name: str | None = None
    frames: list[Frame] = []
    for line in text.splitlines():
        if len(line) > _LONGEST:
            continue
        opened = _SPY_THREAD.fullmatch(line) or _OWN_THREAD.fullmatch(line)
        if opened:
            if name is not None:
                yield Thread(tuple(frames), name)
            name, frames = opened.groupdict().get("name") or "", []
        elif name is not None and (frame := _frame(line)):
            frames.append(frame)
    if name is not None:
        yield Thread(tuple(frames), name)


def _frame(line: str) -> Frame | None:
    """Return the frame in a line of py-spy (`    name (file:3)`) or of the fault handler; None for any other line."""
    if own := _OWN_FRAME.fullmatch(line):
        return Frame(own["name"], own["file"], int(own["line"]))
    if not line.startswith("    ") or not line.endswith(")"):
        return None
    name, _, place = line[4:-1].rpartition(" (")
    file, _, number = place.rpartition(":")
    if file and number.isdecimal() and len(number) < 10:
        return Frame(name, file, int(number)) if name else None
    return Frame(name, place) if name and place else None
