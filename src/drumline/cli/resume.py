"""``drumline resume``: continue a run that failed or was killed."""

from __future__ import annotations

import click

from drumline.cli.find import find_target, find_whole_run
from drumline.cli.terminal import print_line
from drumline.cli.train import detach, require_launchable, watch
from drumline.engine.registry import open_engine
from drumline.errors import EngineError
from drumline.supervise.detach import held_interrupts
from drumline.supervise.requests import check_resumable, is_lost, read_state, resume_run
from drumline.supervise.site import site_of_run


@click.command()
@click.argument("run", metavar="ID")
@click.option("-d", "--detach", "in_background", is_flag=True, help="Resume the run and exit.")
@click.option("--kill-on-interrupt", is_flag=True, help="Ctrl-C stops the run instead of detaching from it.")
@click.pass_context
def command(ctx: click.Context, run: str, *, in_background: bool, kill_on_interrupt: bool) -> None:
    """Continue the run ID, which failed or was killed, with its next attempt, and show its output.

    The plan stays as `drumline train` made it; later changes to the spec have no effect. Restart budgets and the time
    limit start anew. The exit code is 0 if the run finished, otherwise 1.
    """
    folder = find_whole_run(run, "only whole runs can be resumed", "`drumline resume RUN` resumes all replicas of it")
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
            print_line(f"drumline: run {folder.id} ({plan.name}) continues with attempt {attempt}", err=True)
            if in_background:
                print_line(folder.id)
                return
        ctx.exit(watch(folder, since=attempt))
    except KeyboardInterrupt:
        detach(folder, kill=kill_on_interrupt)
        ctx.exit(130)
