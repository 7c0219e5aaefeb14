"""``drumline stacks``: what the threads of a run's replicas are doing, or were when it hung."""

from __future__ import annotations

import os
from contextlib import suppress

import click

from drumline.cli.frame import as_json
from drumline.cli.text import FORM_OPTION, utc
from drumline.errors import NotFoundError
from drumline.run.id import parse_target
from drumline.run.traces import STACKS, trace_dir
from drumline.runtime.unix import connect
from drumline.store.folder import find_folder
from drumline.store.home import home_of
from drumline.supervise.control import request_stacks
from drumline.supervise.reach import read_state


@click.command()
@click.argument("target", metavar="ID")
@FORM_OPTION
def command(target: str, form: str) -> None:
    """Show the stacks of the run ID, or of one of its replicas, as 4.worker.1.

    Of a run that goes on they are taken now, which does it no harm and needs py-spy; of one that hung, those are shown
    that were saved before it was stopped.
    """
    meant = parse_target(target)
    folder = find_folder(home_of(os.environ), meant.run)
    replicas = meant.replicas(folder.plan())
    goes_on = not read_state(folder).phase.is_final
    if goes_on and (connection := connect(folder.socket_file)):
        with connection:
            request_stacks(connection)
    state, found = read_state(folder), []
    for name, standing in state.replicas.items():
        path = folder.path / trace_dir(name, state.attempt, standing.incarnation) / STACKS
        with suppress(FileNotFoundError):
            if name in replicas:
                text = path.read_text("utf-8", "replace").strip()
                found.append({"id": f"{folder.id}.{name}", "at": utc(path.stat().st_mtime), "stacks": text})
    if not found:
        hint = "it needs py-spy: `pip install 'drumline[stacks]'` where drumline is" if goes_on else None
        raise NotFoundError(f"there are no stacks of {target}", hint=hint or "they are saved when a run hangs")
    if form == "json":
        click.echo(as_json(found))
        return
    click.echo("\n\n".join(f"[{each['at']}] {each['id']}\n{each['stacks']}" for each in found))
