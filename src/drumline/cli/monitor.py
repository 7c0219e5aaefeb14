"""``drumline monitor``: what the replicas use, each second, once, or over the whole of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import click

from drumline.cli.find import find_run
from drumline.cli.frame import Frame, show, terminal_columns, watch
from drumline.cli.history import look_at_history
from drumline.cli.status import working_directory
from drumline.cli.terminal import json_lines
from drumline.cli.text import FORM_OPTION
from drumline.cli.usage import picture, run_usage
from drumline.errors import InputError
from drumline.run.id import Target, parse_target
from drumline.store.access import open_home
from drumline.store.clock import read_clock
from drumline.store.folder import find_folder
from drumline.supervise.watch import Watch
from drumline.view.monitor import MonitoredRun, monitor_run
from drumline.view.runs import recent_runs

PATIENCE_SECONDS = 2.0  # for a supervisor that looks each second
ONCE_PATIENCE_SECONDS = 10.0  # of whoever looks only once, and has nothing yet to show
_PAUSE_SECONDS = 1.0


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("-a", "--all", "everything", is_flag=True, help="Without ID: what runs of every project.")
@click.option("--once", is_flag=True, help="Look for a second, print it, and come back.")
@click.option("--history", is_flag=True, help="What was used from the start on; also of runs that are over.")
@FORM_OPTION
def command(ids: tuple[str, ...], *, everything: bool, once: bool, history: bool, form: str) -> None:
    """Show what the replicas of ID use, each second until the run is over.

    ID is a run, as 4, or a replica of it, as 4.worker.1 or 4.chief. Without ID it is all that runs of this project,
    which is the folder that its runs were launched from.
    """
    home = open_home(os.environ)
    targets = [parse_target(each) for each in ids]
    for target in targets:
        find_run(home, target.run)
    if history:
        if not targets:
            raise InputError("--history needs the ID of a run", hint="`drumline status` lists them")
        show(look_at_history(home, targets, form))
        return
    directory = None if everything or targets else working_directory()
    with closing(Watch()) as watcher:
        look = partial(_look, home, targets, directory, form, watcher)
        if once:
            look()
            for _ in range(2):  # the first sample is of the time before; the second is of one second from now
                watcher.wait(ONCE_PATIENCE_SECONDS)
            show(look())
        else:
            watch(look, pause=partial(_pause, watcher))


def _look(home: Path, targets: Sequence[Target], directory: str | None, form: str, watcher: Watch) -> Frame:
    """Read what is known, and have those looked at that go on."""
    meant = targets or _running(home, directory)
    runs = [monitor_run(find_folder(home, target.run), target, read_clock()) for target in meant]
    going = [run.run.summary.id for run in runs if not run.run.summary.is_final]
    watcher.follow([find_folder(home, run).socket_file for run in going])
    if form == "json":
        return Frame(json_lines([run_usage(run) for run in runs]), is_last=not going, is_data=True)
    if not runs:
        return Frame(talk=[_nothing(everywhere=directory is None)], is_last=True)
    return _with_words(picture(runs, terminal_columns()), runs).replace(is_last=not going)


def _running(home: Path, directory: str | None) -> list[Target]:
    rows = recent_runs(home, read_clock(), directory=directory).runs
    return [Target(row.summary.id) for row in reversed(rows) if not row.summary.is_final]


def _nothing(*, everywhere: bool) -> str:
    if everywhere:
        return "nothing runs: `drumline train` starts a run"
    return "nothing of this project runs: `drumline train` starts a run, `drumline monitor -a` shows those of others"


def _with_words(frame: Frame, runs: Sequence[MonitoredRun]) -> Frame:
    """Add what a reader should know of runs in which nothing moves."""
    words = list(frame.talk)
    for run in runs:
        name, phase = run.run.summary.id, run.run.summary.phase
        if run.run.summary.is_final:
            words.append(f"run {name} is over: {phase}; `drumline monitor {name} --history` shows what it used")
        elif run.run.supervisor_gone:
            words.append(f"run {name}: supervisor gone; drumline supervise {name}")
        elif run.run.unreachable:
            words.append(f"run {name}: as of the last contact; supervisor not reachable: {run.run.unreachable}")
    return frame.replace(talk=words)


def _pause(watcher: Watch) -> None:
    """Until there is something new to see."""
    if watcher.is_answered:
        watcher.wait(PATIENCE_SECONDS)
    else:
        time.sleep(_PAUSE_SECONDS)
