"""Remove the volumes that were created for runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from drumline.cli.output import engine_of, output_of
from drumline.cli.terminal import confirm, print_line
from drumline.engine.abilities import Storing
from drumline.engine.output import Volume, Volumes
from drumline.errors import InputError
from drumline.view.run import RunDetails


def remove_volumes(runs: Sequence[RunDetails], *, yes: bool) -> None:
    """List the volumes, ask for confirmation unless `yes`, and delete them."""
    chosen: list[tuple[Volumes, Sequence[Volume]]] = []
    for details in runs:
        engine = engine_of(details)
        if not isinstance(engine, Storing):
            continue
        volumes = engine.open_volumes(output_of(details))
        found = volumes.volumes()
        for volume in found:
            print_line(f"run {details.plan.run}: {volume.words}", err=True)
        if found:
            chosen.append((volumes, found))
    if not chosen:
        print_line("there is no volume that was created for these runs", err=True)
        return
    if not yes:
        if not sys.stdin.isatty():
            raise InputError("deleting volumes needs a confirmation", hint="confirm with `--yes`")
        confirm("Delete these volumes permanently?")
    for volumes, found in chosen:
        volumes.remove([volume.name for volume in found])
        for volume in found:
            print_line(f"deleted the {volume.kind} {volume.name}")
