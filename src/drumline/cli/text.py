"""Words and tables for the terminal; readable without colour."""

from __future__ import annotations

from collections.abc import Sequence

import click

from drumline.errors import Problem


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-justified columns, as wide as their widest cell, two spaces apart."""
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def count(number: int, noun: str) -> str:
    """`1 worker`, `3 workers`, `2 ps`."""
    return f"{number:,} {noun}" if number == 1 or noun.endswith("s") else f"{number:,} {noun}s"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def warn(message: str | Problem) -> None:
    """Say something that does not stop anything."""
    click.echo(f"{click.style('warning:', fg='yellow')} {message}", err=True)
