"""``drumline monitor``: the CPU, memory and GPU use of replicas, live, once, or since the start."""

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
from drumline.cli.history import history_frame
from drumline.cli.status import working_directory
from drumline.cli.terminal import json_lines
from drumline.cli.text import FORM_OPTION
from drumline.cli.usage import run_usage, usage_frame
from drumline.errors import InputError
from drumline.run.id import Target, parse_target
from drumline.store.access import open_home
from drumline.store.clock import read_clock
from drumline.store.folder import find_folder
from drumline.supervise.watch import Watch
from drumline.view.monitor import MonitoredRun, monitor_run
from drumline.view.runs import recent_runs

_ANSWER_SECONDS = 2.0  # a supervisor measures each second
_FIRST_ANSWER_SECONDS = 10.0  # with `--once`
_PAUSE_SECONDS = 1.0


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("-a", "--all", "everything", is_flag=True, help="Without ID: runs of every project.")
@click.option("--once", is_flag=True, help="Measure for one second, print the result and exit.")
@click.option("--history", is_flag=True, help="Show the use since the start; also of runs that are over.")
@FORM_OPTION
def command(ids: tuple[str, ...], *, everything: bool, once: bool, history: bool, form: str) -> None:
    """Show the CPU, memory and GPU use of replicas each second until the run is over.

    ID is a run such as 4, or a replica such as 4.worker.1 or 4.chief. Without ID, show all running runs of this
    project: the folder that they were launched from.
    """
    home = open_home(os.environ)
    targets = [parse_target(each) for each in ids]
    for target in targets:
        find_run(home, target.run)
    if history:
        if not targets:
            raise InputError("--history needs the ID of a run", hint="`drumline status` lists them")
        show(history_frame(home, targets, form))
        return
    directory = None if everything or targets else working_directory()
    with closing(Watch()) as watcher:
        make_frame = partial(_frame, home, targets, directory, form, watcher)
        if once:
            make_frame()
            for _ in range(2):  # the first sample is about the time before this command
                watcher.wait(_FIRST_ANSWER_SECONDS)
            show(make_frame())
        else:
            watch(make_frame, pause=partial(_pause, watcher))


def _frame(home: Path, targets: Sequence[Target], directory: str | None, form: str, watcher: Watch) -> Frame:
    """Return a frame with the latest use; let the supervisors of running runs continue to measure."""
    meant = targets or _running(home, directory)
    runs = [monitor_run(find_folder(home, target.run), target, read_clock()) for target in meant]
    going = [run.run.summary.id for run in runs if not run.run.summary.is_final]
    watcher.follow([find_folder(home, run).socket_file for run in going])
    if form == "json":
        return Frame(json_lines([run_usage(run) for run in runs]), is_last=not going, is_data=True)
    if not runs:
        return Frame(messages=[_no_runs_message(everywhere=directory is None)], is_last=True)
    return _with_messages(usage_frame(runs, terminal_columns()), runs).replace(is_last=not going)


def _running(home: Path, directory: str | None) -> list[Target]:
    rows = recent_runs(home, read_clock(), directory=directory).runs
    return [Target(row.summary.id) for row in reversed(rows) if not row.summary.is_final]


def _no_runs_message(*, everywhere: bool) -> str:
    if everywhere:
        return "no run is running: `drumline train` starts one"
    return "no run of this project is running: `drumline train` starts one, `drumline monitor -a` shows all projects"


def _with_messages(frame: Frame, runs: Sequence[MonitoredRun]) -> Frame:
    """Return the frame with a message for each run that is not measured now."""
    messages = list(frame.messages)
    for run in runs:
        name, phase = run.run.summary.id, run.run.summary.phase
        if run.run.summary.is_final:
            messages.append(f"run {name} is over: {phase}; `drumline monitor {name} --history` shows its use")
        elif run.run.supervisor_gone:
            messages.append(f"run {name}: supervisor gone; `drumline supervise {name}` starts another")
        elif run.run.unreachable:
            messages.append(f"run {name}: as of the last contact; supervisor not reachable: {run.run.unreachable}")
    return frame.replace(messages=messages)


def _pause(watcher: Watch) -> None:
    """Wait for a new sample, or for a second if no supervisor answers."""
    if watcher.is_answered:
        watcher.wait(_ANSWER_SECONDS)
    else:
        time.sleep(_PAUSE_SECONDS)
