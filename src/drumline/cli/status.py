"""``drumline status``: the list of runs, or one run and its replicas."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumline.cli.frame import Frame, show, watch
from drumline.cli.run_row import note, run_data
from drumline.cli.terminal import json_lines
from drumline.cli.text import FORM_OPTION, table_of
from drumline.default import DEFAULT_ENGINE
from drumline.errors import InputError
from drumline.run.stall import describe_stall
from drumline.store.access import open_home
from drumline.store.clock import Moment, read_clock
from drumline.store.home import run_ids
from drumline.view.runs import RunRow, recent_runs
from drumline.words import count, format_duration, listed

if TYPE_CHECKING:
    from drumline.view.replica_progress import ReplicaProgress

_STALE_SECONDS = 5.0


@click.command()
@click.argument("target", required=False, metavar="[ID]")
@click.option("-a", "--all", "everything", is_flag=True, help="Runs of every project.")
@click.option(
    "-n",
    "limit",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="How many runs; 0 shows all.",
)
@click.option("-w", "--watch", "watching", is_flag=True, help="Update every second until the run is over.")
@FORM_OPTION
def command(target: str | None, *, everything: bool, limit: int, watching: bool, form: str) -> None:
    """Show the runs of this project, newest first; or the run ID and its replicas.

    A project is the folder that its runs were launched from. ID is a run such as 4, or a replica such as 4.worker.1
    or 4.chief.
    """
    home = open_home(os.environ)
    if target is None:
        directory = None if everything else working_directory()
        make_frame = partial(_runs_frame, home, directory, limit or None, form)
    else:
        from drumline.cli.details import refresh_run, run_frame  # noqa: PLC0415 - not needed for a list

        refresh_run(home, target)
        make_frame = partial(run_frame, home, target, form)
    if watching:
        watch(make_frame)
    else:
        show(make_frame())


def _runs_frame(home: Path, directory: str | None, limit: int | None, form: str) -> Frame:
    """Return the list of runs as a frame, after the old copies of runs supervised elsewhere were refreshed."""
    now = read_clock()
    listing = recent_runs(home, now, directory=directory, limit=limit)
    if stale := [row.summary.id for row in listing.runs if _is_stale(row, now)]:
        from drumline.cli.details import refresh_run  # noqa: PLC0415 - few runs are supervised elsewhere

        for run in stale:
            refresh_run(home, run)
        listing = recent_runs(home, now, directory=directory, limit=limit)
    messages = []
    if listing.problems:
        more = f", and {count(len(listing.problems) - 1, 'more run')}" if len(listing.problems) > 1 else ""
        messages.append(f"warning: {listing.problems[0]}{more}")
    if form == "json":
        return Frame(
            json_lines([run_data(row, _progress(home, row, now)) for row in listing.runs]), messages, is_data=True
        )
    if not listing.runs:
        messages.append(_no_runs_message(home, everywhere=directory is None))
        return Frame(messages=messages)
    if listing.has_more:
        messages.append("there are older runs: `-n 0` shows all")
    return Frame(_table(home, listing.runs, now), messages, is_table=True)


def _is_stale(row: RunRow, now: Moment) -> bool:
    """Return whether the run is supervised elsewhere and its copy on this machine is old."""
    if not row.supervisor_gone or row.reach is None:
        return False
    return not row.reach.has_ended_since(now.at - _STALE_SECONDS)


def _progress(home: Path, row: RunRow, now: Moment) -> ReplicaProgress | None:
    """Return the progress of the chief of a RUNNING run; None for any other run."""
    if row.summary.phase != "RUNNING":
        return None
    from drumline.view.progress import read_chief_progress  # noqa: PLC0415 - as above

    return read_chief_progress(home, row.summary, now.at)


def _note(home: Path, row: RunRow, now: Moment) -> str:
    """Return the note about a run, with its progress or since when it is stalled."""
    if row.stalled and not row.supervisor_gone:
        return "; ".join(part for part in (note(row), f"stalled: {describe_stall(row.stalled)}") if part)
    replica_progress = None if row.supervisor_gone else _progress(home, row, now)
    if replica_progress is None:
        return note(row)
    from drumline.cli.progress import describe  # noqa: PLC0415 - as above

    return "; ".join(part for part in (note(row), describe(replica_progress)) if part)


def _table(home: Path, rows: tuple[RunRow, ...], now: Moment) -> list[str]:
    columns = {
        "ID": [row.summary.id for row in rows],
        "PROJECT": [row.summary.project for row in rows],
        "NAME": [row.summary.name if row.summary.name != row.summary.project else "" for row in rows],
        "STATE": [row.summary.phase for row in rows],
        "AGE": [format_duration(now.at - row.summary.created_at, parts=1) for row in rows],
        "DURATION": ["-" if row.duration_seconds is None else format_duration(row.duration_seconds) for row in rows],
        "REPLICAS": [_replica_counts(row) for row in rows],
        "ENGINE": [row.summary.engine if row.summary.engine != DEFAULT_ENGINE else "" for row in rows],
        "NOTE": [_note(home, row, now) for row in rows],
    }
    return table_of({heading: cells for heading, cells in columns.items() if any(cells)})


def _replica_counts(row: RunRow) -> str:
    return listed([count(number, role) for role, number in row.summary.replica_counts.items()])


def _no_runs_message(home: Path, *, everywhere: bool) -> str:
    if everywhere or not run_ids(home):
        return "no runs yet: `drumline train` starts one"
    return "no runs of this project yet: `drumline train` starts one, `drumline status -a` shows all projects"


def working_directory() -> str:
    """Return the current folder; raise InputError if it was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        raise InputError("the current folder has been deleted", hint="`drumline status -a` shows all runs") from None
