"""``drumline environments``: list or remove the Python environments built for runs."""

from __future__ import annotations

import os
import time

import click

from drumline.cli.terminal import print_json, print_line, print_lines
from drumline.cli.text import FORM_OPTION, table, utc
from drumline.record import to_dict
from drumline.runtime.environment import remove_unused
from drumline.store.home import cache_of
from drumline.view.environments import EnvironmentRow, environment_rows
from drumline.words import clip, format_duration, printable


@click.command()
@click.option("--prune", is_flag=True, help="Remove all environments that no run uses now.")
@FORM_OPTION
def command(*, prune: bool, form: str) -> None:
    """List the Python environments that were built for the runs of all projects.

    An environment that was not used for 30 days is removed when another is built.
    """
    root = str(cache_of(os.environ) / "environments")
    if prune:
        for folder in remove_unused(root, 0.0):
            print_line(f"removed {folder}", err=form == "json")
    rows = environment_rows(root)
    if form == "json":
        print_json([_data(row) for row in rows])
    elif rows and not prune:
        print_lines(
            table(("NAME", "STATE", "SIZE", "USED", "REQUIREMENTS"), [_cells(row, time.time()) for row in rows])
        )
    elif not rows and not prune:
        print_line(f"there are no environments in {root}", err=True)


def _cells(row: EnvironmentRow, now: float) -> tuple[str, ...]:
    return (
        row.name,
        row.state,
        f"{row.bytes / 1e6:,.0f} MB" if row.bytes else "-",
        f"{format_duration(now - row.used_at, parts=1)} ago",
        clip(printable(", ".join(row.requirements)), 70),
    )


def _data(row: EnvironmentRow) -> dict[str, object]:
    return {**to_dict(row), "used_at": utc(row.used_at)}
