"""Words and tables for the terminal; readable without colour."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import click

from drumline.cli.terminal import escape, print_warning
from drumline.errors import Problem

__all__ = ("FORM_OPTION", "rounded", "table", "table_of", "utc", "warn")


FORM_OPTION = click.option(
    "-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", help="How to print it."
)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of left-justified columns, as wide as their widest cell, two spaces apart."""
    lines = [[escape(cell) for cell in line] for line in (headings, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def table_of(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a table as `table` does, from the cells of each column by its heading."""
    return table(tuple(columns), list(zip(*columns.values(), strict=True)))


def utc(at: float | None) -> str | None:
    """`2026-11-15T07:23:46Z`; None for None, and for a time that no calendar has."""
    try:
        return None if at is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    except (OverflowError, ValueError, OSError):
        return None


def rounded(seconds: float | None) -> float | None:
    """Seconds for a program, to the millisecond; None stays what it is."""
    return None if seconds is None else round(seconds, 3)


def warn(*messages: str | Problem) -> None:
    """Print what does not stop anything, on stderr."""
    for message in messages:
        print_warning(str(message))
