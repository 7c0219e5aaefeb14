"""``drumline stacks``: what the threads of a run's replicas are doing, or were when it hung."""

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
    """Show the stacks of the run ID, or of one of its replicas, as 4.worker.1.

    Of a run that goes on they are taken now, which does it no harm and needs py-spy; of one that hung, those are shown
    that were saved before it was stopped.
    """
    folder, meant = find_target(target)
    replicas = meant.replicas(folder.plan())
    goes_on = not read_state(folder).phase.is_final
    if goes_on and (connection := connect(folder.socket_file)):
        with connection:
            if not request_stacks(connection):
                raise EngineError(f"taking stacks is not supported on {folder.plan().engine}")
    state, found = read_state(folder), []
    for name, own in state.replicas.items():
        path = folder.path / trace_dir(name, state.attempt, own.incarnation) / STACKS
        with suppress(OSError):  # it is not there, or something else is
            if name in replicas:
                text = _read(path)
                found.append({"id": f"{folder.id}.{name}", "at": utc(path.stat().st_mtime), "stacks": text})
    if not found:
        hint = "it needs py-spy: `pip install 'drumline[stacks]'` where drumline is" if goes_on else None
        raise NotFoundError(f"there are no stacks of {target}", hint=hint or "they are saved when a run hangs")
    if form == "json":
        print_json(found)
        return
    for number, each in enumerate(found):
        # Indented: a stack dump may have been written by a host, and is not to pass for the head of another.
        print_lines([""] * (number > 0) + [f"[{each['at']}] {each['id']}"])
        print_lines(f"  {line}".rstrip() for line in str(each["stacks"]).split("\n"))


def _read(path: Path) -> str:
    with open(path, "rb", opener=open_regular) as stacks:
        return stacks.read(_MOST_BYTES).decode(errors="replace").strip()
