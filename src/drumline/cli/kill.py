"""``drumline kill``: stop runs and all their processes."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from drumline.cli.find import find_whole_run
from drumline.cli.terminal import print_line
from drumline.cli.text import utc
from drumline.cli.waiting import waiting_notice
from drumline.engine.abilities import Verifying
from drumline.engine.output import RunOutput
from drumline.engine.registry import open_engine
from drumline.run.state import Phase
from drumline.run.unverified import UnverifiedHost
from drumline.store.folder import RunFolder
from drumline.supervise.requests import ask_to_stop, read_state, wait_supervisor_exit, wait_until_stopped
from drumline.supervise.site import site_of_run
from drumline.words import format_duration, listed


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("-f", "--force", is_flag=True, help="Kill replicas at once, without time to save.")
@click.pass_context
def command(ctx: click.Context, ids: tuple[str, ...], *, force: bool) -> None:
    """Stop runs and all their processes.

    All ids are checked before anything is stopped. A run that is over is left as it is. The exit code is 1 if a host
    could not be reached and its lease has not expired, so that replicas may still run there.
    """
    running, unsure = [], False
    whole = "only whole runs can be killed", "`drumline kill RUN` stops all replicas of it"
    for folder in [find_whole_run(text, *whole) for text in dict.fromkeys(ids)]:
        before = read_state(folder)
        if before.phase.is_final:
            print_line(f"run {folder.id} is already over: {before.phase}")
            unsure |= _report_unverified(folder)
        else:
            running.append(folder)
    asked = [(folder, ask_to_stop(folder, force=force)) for folder in running]
    for folder, before in asked:
        with waiting_notice(_waits(folder, force=force)):
            state = wait_until_stopped(folder, before, force=force)
        if not state.phase.is_final:
            print_line(f"run {folder.id} was stopped and has been resumed since: {state.phase}")
        elif _report_unverified(folder):
            unsure = True
        elif state.phase is Phase.KILLED:
            print_line(f"killed run {folder.id}; none of its processes is left")
        else:
            print_line(f"run {folder.id} ended before it was killed: {state.phase}")
    if unsure:
        ctx.exit(1)


def _waits(folder: RunFolder, *, force: bool) -> str:
    """Return the notice for a command that waits for the end of a run."""
    if force:
        return f"run {folder.id}: waiting until none of its processes is left"
    grace = format_duration(folder.plan().timeouts.grace_seconds)
    return (
        f"run {folder.id}: its replicas have {grace} to save and exit;"
        f" `drumline kill --force {folder.id}` kills them at once"
    )


def _report_unverified(folder: RunFolder) -> bool:
    """Report hosts that could not be reached; return whether replicas may still run on one of them."""
    plan = folder.plan()
    if not plan.is_elsewhere:
        return False
    engine = open_engine(plan.engine, site_of_run(folder))
    if not isinstance(engine, Verifying):
        return False
    wait_supervisor_exit(folder)
    hosts = engine.unverified_hosts(RunOutput(plan, folder.output_dir, folder.path))
    now = time.time()
    over = [host for host in hosts if host.until is not None and host.until <= now]
    for host in over:
        ended = f"its replicas there have ended with their lease, at the latest at {utc(host.until)}"
        print_line(f"run {folder.id} is over; {host.host} could not be reached, and {ended}")
    left = [host for host in hosts if host not in over]
    if not left:
        return False
    print_line(f"run {folder.id} is over, but {listed([each.host for each in left])} could not be reached", err=True)
    print_line(f"hint: a replica that is left there {_until(left)}", err=True)
    return True


def _until(hosts: Sequence[UnverifiedHost]) -> str:
    """Return when the replicas on these hosts end at the latest, as far as that is known."""
    leases = [host.lease_seconds for host in hosts if host.lease_seconds is not None]
    if len(leases) < len(hosts):
        return "continues: it has no lease"
    known = [host.until for host in hosts if host.until is not None]
    if len(known) < len(hosts):
        return f"ends by itself within {format_duration(max(leases))}"
    return f"ends by itself, at the latest at {utc(max(known))}"
