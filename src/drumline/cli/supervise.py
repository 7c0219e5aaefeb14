"""``drumline supervise``: start a new supervisor for a run that has lost its own."""

from __future__ import annotations

import click

from drumline.cli.find import find_target
from drumline.cli.terminal import print_line
from drumline.runtime.lock import is_locked
from drumline.supervise.detach import start_supervisor
from drumline.supervise.requests import read_state


@click.command()
@click.argument("run", metavar="ID")
def command(run: str) -> None:
    """Start a new supervisor for the run ID, after its own was killed or the machine was restarted."""
    folder, _ = find_target(run)
    state = read_state(folder)
    if state.phase.is_final:
        print_line(f"run {folder.id} is over: {state.phase}")
    elif not is_locked(folder.lock_file) and start_supervisor(folder):
        print_line(f"started a new supervisor for run {folder.id}")
    else:
        print_line(f"run {folder.id} has a supervisor already")
