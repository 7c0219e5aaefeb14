"""``drumline train``: start a run and watch it."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path

import click

from drumline.cli.check import headcount
from drumline.cli.load import ON_OPTION, PARAMETER_OPTION, SPEC_ARGUMENT, load, show_warnings
from drumline.cli.stream import Screen, follow
from drumline.engine.registry import open_engine
from drumline.errors import EngineError
from drumline.plan.types import Plan
from drumline.run.state import Phase
from drumline.store.folder import RunFolder, create_folder
from drumline.store.launch import write_launch
from drumline.supervise.control import connect, request_stop, wait_closed
from drumline.supervise.detach import detach
from drumline.supervise.main import supervise
from drumline.view.feed import Feed


@click.command()
@SPEC_ARGUMENT
@PARAMETER_OPTION
@ON_OPTION
@click.option("-d", "--detach", "in_background", is_flag=True, help="Start it and come back at once.")
@click.option("--kill-on-interrupt", is_flag=True, help="Ctrl-C ends the run instead of leaving it.")
def command(
    file: str | None, given: tuple[str, ...], on: str | None, *, in_background: bool, kill_on_interrupt: bool
) -> None:
    """Run FILE (drumline.yml unless given) and show what happens."""
    loaded = load(file, given=given, on=on)
    show_warnings(loaded)
    open_engine(loaded.plan.engine, loaded.site)
    folder = create_folder(loaded.site.home)
    plan = loaded.plan_as(folder.id)
    write_launch(folder, plan, spec=loaded.data, directory=loaded.site.directory, at=time.time())
    word = detach(folder.supervisor_log, partial(supervise, folder, loaded.site))
    if word != "ok":
        raise EngineError(f"run {folder.id} has no supervisor", hint=f"see {folder.supervisor_log}")
    click.echo(f"drumline: run {folder.id} ({plan.name}): {headcount(plan)} on {plan.engine}", err=True)
    if in_background:
        click.echo(folder.id)
        return
    raise SystemExit(watch(folder, plan, kill_on_interrupt=kill_on_interrupt))


def watch(folder: RunFolder, plan: Plan, *, kill_on_interrupt: bool) -> int:
    """Show a run until it ends, and return its exit code."""
    ids = [folder.id, *(f"{folder.id}.{replica.id}" for replica in plan.replicas)]
    feed = Feed(folder)
    try:
        follow(feed, Screen(ids))
    except KeyboardInterrupt:
        return _interrupted(folder, feed, kill=kill_on_interrupt)
    return 0 if feed.state.phase is Phase.FINISHED else 1


def _interrupted(folder: RunFolder, feed: Feed, *, kill: bool) -> int:
    return 130
