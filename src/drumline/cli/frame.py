"""What a command shows, once or again and again in the same place."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import click

PAUSE_SECONDS = 1.0
BAR = "┃"  # in front of each line of a card

_COLOURS = {"FINISHED": "green", "FAILED": "red", "KILLED": "yellow", "RUNNING": "cyan", "RESTARTING": "magenta"}
_EXCEPTION = re.compile(r" [A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration)\b")
_STATE = r"\b(?:CREATED|BUILDING|PENDING|STARTING|RUNNING|RESTARTING|FINISHED|FAILED|KILLED)\b"


class Frame(NamedTuple):
    """A picture of how things stand: the result, words beside it, and whether it will change no more."""

    text: str = ""
    talk: str = ""
    is_last: bool = False
    is_table: bool = False  # its lines may be cut; whoever wants all of one looks at that alone
    is_data: bool = False  # for a program


def show_card(text: str) -> None:
    """Print a card; on a terminal in colour."""
    click.echo("\n".join(_draw(text, None)) if _terminal_size() else text)


def show(frame: Frame) -> None:
    """Print a picture once; on a terminal in colour, a table no wider than that."""
    if frame.text:
        size = None if frame.is_data else _terminal_size()
        columns = size.columns if size and frame.is_table else None
        click.echo("\n".join(_draw(frame.text, columns)) if size else frame.text)
    if frame.talk:
        click.echo(frame.talk, err=True)


def sleep() -> None:
    """Wait for a second."""
    time.sleep(PAUSE_SECONDS)


def watch(look: Callable[[], Frame], *, pause: Callable[[], None] = sleep) -> None:
    """Print a picture again and again until it is the last: in place on a terminal, else whenever it has changed."""
    drawn, before = 0, None
    while True:
        frame = look()
        size = None if frame.is_data else _terminal_size()
        if size:
            lines = _draw("\n".join(part for part in (frame.text, frame.talk) if part), size.columns)
            if len(lines) >= size.lines > 2:
                lines[size.lines - 2 :] = [f"… {len(lines) - size.lines + 2} more lines"]
            back = f"\x1b[{drawn}A" if drawn else ""
            click.echo(f"{back}\x1b[J" + "\n".join(lines), color=True)  # these are moves, not colours
            drawn = len(lines)
        elif frame != before:
            show(frame)
            before = frame
        if frame.is_last:
            return
        pause()


def as_json(data: object) -> str:
    """Data for a program; what is no text in a file's name stays an escape, which is JSON too."""
    import json  # noqa: PLC0415 - who reads a table does not wait for it

    return json.dumps(data, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def terminal_columns() -> int | None:
    """How wide the terminal is that shows our results; None if none does."""
    size = _terminal_size()
    return size.columns if size else None


def _terminal_size() -> os.terminal_size | None:
    try:
        return os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return None


def _draw(text: str, columns: int | None) -> list[str]:
    colourful = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    lines = []
    for number, line in enumerate(text.splitlines()):
        cut = f"{line[: columns - 1]}…" if columns and len(line) > columns else line
        if colourful:
            cut = (
                _paint_card(cut, is_first=number == 0) if cut.startswith(BAR) else re.sub(_STATE, _paint, cut, count=1)
            )
        lines.append(cut)
    return lines


def _paint_card(line: str, *, is_first: bool) -> str:
    """A red bar; what happened in bold, and where it did fainter than the rest."""
    text = line.removeprefix(BAR)
    is_bold = is_first or _EXCEPTION.match(text) is not None
    is_place = text.startswith(("   File ", "   …"))
    return click.style(BAR, fg="red") + (click.style(text, bold=is_bold or None, dim=is_place or None) if text else "")


def _paint(match: re.Match[str]) -> str:
    return click.style(match[0], fg=_COLOURS.get(match[0], "blue"))
