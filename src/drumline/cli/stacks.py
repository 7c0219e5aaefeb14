"""``drumline stacks``: the stack traces of a run's replicas."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from drumline.cli.find import find_target
from drumline.cli.terminal import print_json, print_lines
from drumline.cli.text import FORM_OPTION, utc
from drumline.errors import EngineError, NotFoundError
from drumline.run.traces import STACKS, trace_dir
from drumline.runtime.private import open_regular
from drumline.runtime.unix import connect
from drumline.supervise.control import request_stacks
from drumline.supervise.requests import read_state

_MOST_BYTES = 1 << 22  # of one replica's stacks


@click.command()
@click.argument("target", metavar="ID")
@FORM_OPTION
def command(target: str, form: str) -> None:
    """Show the stack traces of the run ID, or of a replica such as 4.worker.1.

    The stacks of a running run are taken now, by py-spy, without stopping it. For a run that hung, the stacks that
    were saved before it was stopped are shown.
    """
    folder, meant = find_target(target)
    replicas = meant.replicas(folder.plan())
    is_running = not read_state(folder).phase.is_final
    if is_running and (connection := connect(folder.socket_file)):
        with connection:
            if not request_stacks(connection):
                raise EngineError(f"stack traces are not supported on {folder.plan().engine}")
    state, found = read_state(folder), []
    for name, own in state.replicas.items():
        path = folder.path / trace_dir(name, state.attempt, own.incarnation) / STACKS
        with suppress(OSError):  # the file is missing, or is no regular file
            if name in replicas:
                text = _read(path)
                found.append({"id": f"{folder.id}.{name}", "at": utc(path.stat().st_mtime), "stacks": text})
    if not found:
        hint = "install py-spy next to drumline: `pip install 'drumline[stacks]'`" if is_running else None
        raise NotFoundError(f"there are no stack traces of {target}", hint=hint or "they are saved when a run hangs")
    if form == "json":
        print_json(found)
        return
    for number, each in enumerate(found):
        # Indented, so that text from a host cannot imitate the heading of another replica.
        print_lines([""] * (number > 0) + [f"[{each['at']}] {each['id']}"])
        print_lines(f"  {line}".rstrip() for line in str(each["stacks"]).split("\n"))


def _read(path: Path) -> str:
    with open(path, "rb", opener=open_regular) as stacks:
        return stacks.read(_MOST_BYTES).decode(errors="replace").strip()
