"""``drumline wait``: wait until a run is over."""

from __future__ import annotations

import click

from drumline.cli.find import find_target
from drumline.cli.terminal import print_line
from drumline.run.state import Phase
from drumline.supervise.requests import wait_for_end


@click.command()
@click.argument("run", metavar="ID")
def command(run: str) -> None:
    """Wait until the run ID is over; the exit code is 0 if it finished, otherwise 1."""
    state = wait_for_end(find_target(run)[0])
    print_line(f"run {run}: {state.phase}", err=True)
    raise SystemExit(0 if state.phase is Phase.FINISHED else 1)
