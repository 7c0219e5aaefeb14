"""``drumline inspect``: a shell where a run has written."""

from __future__ import annotations

import click

from drumline.cli.find import find_whole_run
from drumline.cli.output import engine_of, output_of
from drumline.engine.abilities import Browsable, require
from drumline.engine.output import Output
from drumline.store.clock import read_clock
from drumline.view.run import run_details


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("run", metavar="ID")
@click.argument("argv", nargs=-1, metavar="[COMMAND...]", type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, run: str, argv: tuple[str, ...]) -> None:
    """Open a shell where a run has written, or run COMMAND there; its exit code is this one's.

    On this machine that is the run's output folder; on hosts the chief's, until it is fetched. In a cluster, a small
    pod of the run's image is started on its volumes, at the paths that they have in training, and removed afterwards.
    """
    ctx.exit(find_output(run).run_command(argv))


def find_output(run: str) -> Output:
    """What the run of this number has written."""
    details = run_details(find_whole_run(run, "all replicas of a run write to one place", "say `RUN`"), read_clock())
    browsable = require(engine_of(details), Browsable, "access to the output", details.plan.engine)
    return browsable.open_output(output_of(details))
