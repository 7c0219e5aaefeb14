"""An emulator of a terminal, with the control sequences that drumline uses."""

from __future__ import annotations

import re
from itertools import groupby
from typing import NamedTuple

_PIECES = re.compile(
    r"\x1b\[(?P<numbers>[\d;]*)(?P<order>[A-Za-z])|(?P<control>[\x00-\x1f\x7f])|(?P<text>[^\x00-\x1f\x7f]+)"
)


class Look(NamedTuple):
    """The style of a character; the colour is one of sixteen, or the terminal's default."""

    colour: int | None = None
    bold: bool = False
    dim: bool = False


class Span(NamedTuple):
    """Adjacent characters of one style, and their first column."""

    column: int
    text: str
    look: Look


Cell = tuple[str, Look]
PLAIN = Look()


class Screen:
    """A terminal with a fixed number of columns and any number of lines."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._lines: list[list[Cell]] = [[]]
        self._row = self._column = 0
        self._look = PLAIN

    def write(self, text: str) -> None:
        """Write text; raise ValueError for an unknown control sequence, so that nothing is shown wrongly."""
        at = 0
        for piece in _PIECES.finditer(text):
            if piece.start() != at:
                break
            at = piece.end()
            if piece["text"]:
                for character in piece["text"]:
                    self._put(character)
            elif piece["control"]:
                self._control(piece["control"])
            else:
                self._obey(piece["order"], [int(number or 0) for number in piece["numbers"].split(";")])
        if at != len(text):
            raise ValueError(f"this screen does not know {text[at : at + 8]!r}")

    def lines(self) -> list[list[Span]]:
        """Return every line from the top, without trailing blanks and empty lines."""
        shown = [_spans(line) for line in self._lines]
        while shown and not shown[-1]:
            shown.pop()
        return shown

    def _put(self, character: str) -> None:
        if self._column == self._columns:
            self._feed()
            self._column = 0
        line = self._lines[self._row]
        line.extend([(" ", PLAIN)] * (self._column + 1 - len(line)))
        line[self._column] = (character, self._look)
        self._column += 1

    def _feed(self) -> None:
        self._row += 1
        if self._row == len(self._lines):
            self._lines.append([])

    def _control(self, character: str) -> None:
        if character == "\n":
            self._feed()
        elif character == "\r":
            self._column = 0
        else:
            raise ValueError(f"this screen does not know {character!r}")

    def _obey(self, order: str, numbers: list[int]) -> None:
        if order == "m":
            for number in numbers:
                self._look = _changed(self._look, number)
        elif order == "A":
            self._row = max(0, self._row - max(1, numbers[0]))
        elif order == "K" and numbers == [0]:
            del self._lines[self._row][self._column :]
        elif order == "J" and numbers == [0]:
            del self._lines[self._row][self._column :]
            del self._lines[self._row + 1 :]
        else:
            raise ValueError(f"this screen does not know the order {order} of {numbers}")


def _changed(look: Look, number: int) -> Look:
    match number:
        case 0:
            return PLAIN
        case 1:
            return look._replace(bold=True)
        case 2:
            return look._replace(dim=True)
        case 22:
            return look._replace(bold=False, dim=False)
        case 39:
            return look._replace(colour=None)
        case _ if 30 <= number <= 37:
            return look._replace(colour=number - 30)
        case _ if 90 <= number <= 97:
            return look._replace(colour=number - 90 + 8)
        case _:
            raise ValueError(f"this screen does not know the look {number}")


def _spans(line: list[Cell]) -> list[Span]:
    column, spans = 0, []
    for look, cells in groupby(line, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in cells)
        if text.strip():
            bare = text.strip()
            spans.append(Span(column + text.index(bare), bare, look))
        column += len(text)
    return spans
