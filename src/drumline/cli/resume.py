"""``drumline resume``: go on with a run that is over and did not finish."""

from __future__ import annotations

import click

from drumline.cli.find import find_target, find_whole_run
from drumline.cli.terminal import print_line
from drumline.cli.train import leave, require_launchable, watch
from drumline.engine.registry import open_engine
from drumline.errors import EngineError
from drumline.supervise.detach import held_interrupts
from drumline.supervise.requests import check_resumable, is_lost, read_state, resume_run
from drumline.supervise.site import site_of_run


@click.command()
@click.argument("run", metavar="ID")
@click.option("-d", "--detach", "in_background", is_flag=True, help="Go on with it and come back at once.")
@click.option("--kill-on-interrupt", is_flag=True, help="Ctrl-C ends the run instead of leaving it.")
@click.pass_context
def command(ctx: click.Context, run: str, *, in_background: bool, kill_on_interrupt: bool) -> None:
    """Go on with the run ID, which failed or was ended: the same run, its next attempt, and show what happens.

    What runs is the run's own plan, as `drumline train` made it: changes to its spec since are another run's. Budgets
    of restarts and the time limit begin anew. The exit code is the run's, as with `drumline train`.
    """
    folder = find_whole_run(run, "only whole runs can be resumed", "`drumline resume RUN` goes on with all of it")
    state = read_state(folder)
    if not is_lost(folder, state):
        check_resumable(folder, state)
    plan = folder.plan()
    require_launchable(open_engine(plan.engine, site_of_run(folder)), plan)
    try:
        with held_interrupts():
            try:
                before = resume_run(folder)
            except EngineError:
                find_target(folder.id)  # raises NotFoundError if it was removed meanwhile
                raise
            attempt = before.attempt + 1
            print_line(f"drumline: run {folder.id} ({plan.name}) goes on as attempt {attempt}", err=True)
            if in_background:
                print_line(folder.id)
                return
        ctx.exit(watch(folder, since=attempt))
    except KeyboardInterrupt:
        leave(folder, kill=kill_on_interrupt)
        ctx.exit(130)
