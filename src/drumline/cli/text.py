"""Tables, times and warnings for the terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import click

from drumline.cli.terminal import escape, print_warning
from drumline.errors import Problem

__all__ = ("FORM_OPTION", "rounded", "table", "table_of", "utc", "warn")


FORM_OPTION = click.option(
    "-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", help="The output format."
)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: left-justified columns, two spaces apart."""
    lines = [[escape(cell) for cell in line] for line in (headings, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def table_of(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a table as `table` does, from the cells of each column by its heading."""
    return table(tuple(columns), list(zip(*columns.values(), strict=True)))


def utc(at: float | None) -> str | None:
    """Return a time as `2026-11-15T07:23:46Z`; None for None and for a time out of range."""
    try:
        return None if at is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    except (OverflowError, ValueError, OSError):
        return None


def rounded(seconds: float | None) -> float | None:
    """Return seconds rounded to the millisecond; None for None."""
    return None if seconds is None else round(seconds, 3)


def warn(*messages: str | Problem) -> None:
    """Print warnings on stderr."""
    for message in messages:
        print_warning(str(message))
