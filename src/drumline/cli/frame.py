"""Print the output of a command once, or redraw it in place."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence

from drumline.cli.terminal import (
    Escaped,
    escape,
    has_colour,
    join,
    move_up,
    print_lines,
    style,
    terminal_size,
    write,
)
from drumline.record import Record

PAUSE_SECONDS = 1.0
BAR = "┃"  # in front of each line of a card

_COLOURS = {"FINISHED": "green", "FAILED": "red", "KILLED": "yellow", "RUNNING": "cyan", "RESTARTING": "magenta"}
_EXCEPTION = re.compile(r" [A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration)\b")
_STATE = r"\b(?:CREATED|BUILDING|PENDING|STARTING|RUNNING|RESTARTING|FINISHED|FAILED|KILLED)\b"


class Frame(Record):
    """The output of a command at one moment: the result on stdout and messages on stderr."""

    lines: Sequence[str] = ()
    messages: Sequence[str] = ()
    is_last: bool = False  # the output will not change any more
    is_table: bool = False  # its lines may be cut to the width of the terminal
    is_data: bool = False  # JSON for a program: it is printed without colour and is not cut


def show_card(lines: Sequence[str]) -> None:
    """Print a failure card; on a terminal in colour."""
    write(join(_draw(lines, None), "\n"))


def show(frame: Frame) -> None:
    """Print a frame once; on a terminal in colour, with tables cut to its width."""
    size = None if frame.is_data else terminal_size()
    if frame.lines and size:
        write(join(_draw(frame.lines, size.columns if frame.is_table else None), "\n"))
    else:
        print_lines(frame.lines)
    print_lines(frame.messages, err=True)


def sleep() -> None:
    """Wait for a second."""
    time.sleep(PAUSE_SECONDS)


def watch(make_frame: Callable[[], Frame], *, pause: Callable[[], None] = sleep) -> None:
    """Print frames until the last: in place on a terminal, elsewhere only a frame that differs from the one before.

    `make_frame` returns the current frame; `pause` waits until the next one.
    """
    drawn, before = 0, None
    while True:
        frame = make_frame()
        size = None if frame.is_data else terminal_size()
        if size:
            lines = _draw((*frame.lines, *frame.messages), size.columns)
            if len(lines) >= size.lines > 2:
                lines[size.lines - 2 :] = [escape(f"… {len(lines) - size.lines + 2} more lines")]
            write(join((move_up(drawn), join(lines, "\n"))))
            drawn = len(lines)
        elif frame != before:
            show(frame)
            before = frame
        if frame.is_last:
            return
        pause()


def terminal_columns() -> int | None:
    """Return the width of the terminal; None if stdout is not a terminal."""
    size = terminal_size()
    return size.columns if size else None


def _draw(lines: Iterable[str], columns: int | None) -> list[Escaped]:
    """Return escaped lines for a terminal, in colour if the terminal has colours, and cut to this width."""
    colourful = has_colour()
    drawn = []
    for number, line in enumerate(lines):
        text = escape(line)
        if columns and len(text) > columns:
            text = join((escape(text[: columns - 1]), escape("…")))
        if colourful:
            text = _paint_card(text, is_first=number == 0) if text.startswith(BAR) else _paint_state(text)
        drawn.append(text)
    return drawn


def _paint_card(line: Escaped, *, is_first: bool) -> Escaped:
    """Colour a line of a failure card: a red bar, the error in bold, file names dim."""
    text = escape(line.removeprefix(BAR))
    is_bold = is_first or _EXCEPTION.match(text) is not None
    is_place = text.startswith(("   File ", "   …"))
    bar = style(escape(BAR), colour="red")
    return join((bar, style(text, bold=is_bold or None, dim=is_place or None))) if text else bar


def _paint_state(line: Escaped) -> Escaped:
    """Colour the first name of a state in a line."""
    found = re.search(_STATE, line)
    if found is None:
        return line
    word = style(escape(found[0]), colour=_COLOURS.get(found[0], "blue"))
    return join((escape(line[: found.start()]), word, escape(line[found.end() :])))
