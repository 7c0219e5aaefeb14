"""``drumline train``: start a run and show its output."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial

import click

from drumline.cli.card import spell_card, spell_end
from drumline.cli.check import show_plan
from drumline.cli.frame import show_card, terminal_columns
from drumline.cli.options import PARAMETER_OPTION, SPEC_ARGUMENT, engine_flags
from drumline.cli.stream import Screen, follow
from drumline.cli.terminal import is_terminal, print_line, print_lines
from drumline.cli.text import warn
from drumline.cli.waiting import waiting_notice
from drumline.engine.abilities import Reachable, Removing
from drumline.engine.protocol import Engine
from drumline.engine.registry import open_engine
from drumline.errors import InputError
from drumline.load.load import Loaded, load
from drumline.plan.types import Plan
from drumline.run.state import Phase
from drumline.store.clock import read_clock
from drumline.store.folder import RunFolder
from drumline.supervise.detach import held_interrupts, start_supervisor
from drumline.supervise.launch import check_launchable, make_run
from drumline.supervise.requests import stop_run, wait_supervisor_exit
from drumline.supervise.site import site_of, site_of_run
from drumline.view.card import Card
from drumline.view.feed import Feed
from drumline.view.groups import count_replicas
from drumline.view.run import run_details

_SECOND_INTERRUPT_SECONDS = 3.0


@click.command()
@SPEC_ARGUMENT
@click.option("-f", "--file", "named", metavar="FILE", help="The same as the argument FILE.")
@PARAMETER_OPTION
@engine_flags
@click.option("--name", metavar="NAME", help="A name for this run, instead of the spec's.")
@click.option("-d", "--detach", "in_background", is_flag=True, help="Start the run, print its number and exit.")
@click.option("--oversubscribe", is_flag=True, help="Claim more resources than there are, without waiting.")
@click.option("--no-warm", is_flag=True, help="Start every replica as a new process, without forking from a warm one.")
@click.option("--dry-run", is_flag=True, help="Only show the replicas that would run.")
@click.option("--kill-on-interrupt", is_flag=True, help="Ctrl-C stops the run instead of detaching from it.")
@click.pass_context
def command(
    ctx: click.Context,
    file: str | None,
    named: str | None,
    given: tuple[str, ...],
    on: str | None,
    flags: Mapping[str, str],
    name: str | None,
    *,
    in_background: bool,
    oversubscribe: bool,
    no_warm: bool,
    dry_run: bool,
    kill_on_interrupt: bool,
) -> None:
    """Run FILE (default: drumline.yml) and show its output.

    The run continues in the background if the terminal is closed or Ctrl-C is pressed; `drumline logs -f` shows it
    again. The exit code is 0 if the run finished, 1 if it failed or was killed.
    """
    if file and named:
        raise InputError(f"two specs, {file} and {named}", hint="name only one")
    loaded = load(
        file or named,
        parameters=given,
        on=on,
        name=name,
        flags=flags,
        unique=True,
        complete=not dry_run,
    )
    if dry_run:
        show_plan(loaded)
        return
    warn(*loaded.warnings)
    site = site_of(loaded.directory)
    engine = open_engine(loaded.plan.engine, site)
    wanted = loaded.plan.replace(oversubscribe=oversubscribe, warm=None if no_warm else loaded.plan.warm)
    warnings = require_launchable(engine, wanted)
    wanted, found = _reach(engine, wanted)
    folder: RunFolder | None = None
    try:
        with held_interrupts():  # until the number of the run is printed
            folder, plan = make_run(partial(_numbered, loaded, wanted), site, spec=loaded.data)
            start_supervisor(folder)
            _print_started(plan)
            if in_background:
                warn(*warnings, *found)  # a command that shows the run reads these warnings from the journal instead
                print_line(folder.id)
                return
        ctx.exit(watch(folder))
    except KeyboardInterrupt:
        if folder is None:
            raise
        detach(folder, kill=kill_on_interrupt)
        ctx.exit(130)


def _numbered(loaded: Loaded, wanted: Plan, run: str) -> Plan:
    """Return the plan of the run with this number, with the options of `wanted`."""
    plan = loaded.plan_as(run)
    return plan.replace(oversubscribe=wanted.oversubscribe, warm=wanted.warm, options=wanted.options)


def _reach(engine: Engine, plan: Plan) -> tuple[Plan, Sequence[str]]:
    """Return the plan and warnings after the first contact with hosts or a cluster."""
    if not isinstance(engine, Reachable):
        return plan, ()
    with waiting_notice(f"drumline: reaching {plan.where}..."):
        return asyncio.run(engine.reach(plan))


def detach(folder: RunFolder, *, kill: bool) -> None:
    """Detach from a run after an interrupt; stop it if `kill` or if a second interrupt follows."""
    if kill or not _print_detached(folder):
        print_lines(("", f"drumline: stopping run {folder.id}"), err=True)
        state = stop_run(folder, force=False)
        print_line(f"drumline: run {folder.id}: {state.phase}", err=True)


def _print_started(plan: Plan) -> None:
    print_line(f"drumline: run {plan.run} ({plan.name}): {count_replicas(plan)} on {plan.engine}", err=True)


def watch(folder: RunFolder, *, since: int = 0) -> int:
    """Show a run until it ends, beginning with the attempt `since`; return 0 if the run finished, otherwise 1."""
    feed = Feed(folder, since=since)
    ids = [folder.id, *(f"{folder.id}.{replica}" for replica in feed.plan.all_ids)]
    shown: list[Card] = []

    def show_cause() -> None:
        shown.extend(_show_card(folder, shown))

    follow(feed, Screen(ids), folder, show_cause)
    if feed.state.phase is Phase.FAILED:
        show_cause()
    if feed.plan.is_elsewhere:
        _wait_until_removed(folder, feed.plan)
    return 0 if feed.state.phase is Phase.FINISHED else 1


def _wait_until_removed(folder: RunFolder, plan: Plan) -> None:
    """Wait until the supervisor has removed the objects of the engine, at most for the time that the engine states."""
    engine = open_engine(plan.engine, site_of_run(folder))
    if isinstance(engine, Removing):
        wait_supervisor_exit(folder, engine.removal_seconds())


def require_launchable(engine: Engine, plan: Plan) -> Sequence[str]:
    """Raise if a plan cannot be placed or started; warn of missing resources and return the other warnings."""
    lacking, warnings = check_launchable(engine, plan)
    if lacking:
        warn(lacking)
    return warnings


def _show_card(folder: RunFolder, shown: Sequence[Card]) -> Sequence[Card]:
    """Show the failure card of a run, and return it; after an earlier card, show only the difference."""
    card = run_details(folder, read_clock()).card
    if card is None:
        return ()
    columns = terminal_columns()
    before = next((each for each in shown if each.cause.attempt == card.cause.attempt), None)
    if before and (before.cause.replica, before.cause.reason) == (card.cause.replica, card.cause.reason):
        lines = spell_end(folder.id, card, columns)
    else:
        lines = spell_card(folder.id, card, columns, is_correction=before is not None)
    if lines:
        show_card(lines)
    return (card,)


def _print_detached(folder: RunFolder) -> bool:
    """Print how to follow the run again; return False if a second interrupt follows."""
    try:
        how = (
            f"drumline: run {folder.id} continues; `drumline logs -f {folder.id}` shows it again,"
            f" `drumline kill {folder.id}` or another Ctrl-C now stops it"
        )
        print_lines(("", how), err=True)
        if is_terminal(err=True):
            time.sleep(_SECOND_INTERRUPT_SECONDS)
    except KeyboardInterrupt:
        return False
    return True
