"""``drumline inspect``: a shell in the output of a run."""

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
    """Open a shell in the output folder of a run, or run COMMAND there and exit with its code.

    For a run on hosts this is the folder on the chief's host until the output is fetched. In a cluster, a small pod of
    the run's image is started with its volumes at the same paths as in training, and removed afterwards.
    """
    ctx.exit(find_output(run).run_command(argv))


def find_output(run: str) -> Output:
    """Return the output of a run; raise InputError for a replica."""
    details = run_details(
        find_whole_run(run, "all replicas of a run share one output folder", "use `RUN`"), read_clock()
    )
    browsable = require(engine_of(details), Browsable, "access to the output", details.plan.engine)
    return browsable.open_output(output_of(details))
