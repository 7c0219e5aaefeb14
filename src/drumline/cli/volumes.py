"""The volumes of runs that are to be removed."""

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
    """Say what will be deleted, ask unless `yes`, and delete it."""
    doomed: list[tuple[Volumes, Sequence[Volume]]] = []
    for details in runs:
        engine = engine_of(details)
        if not isinstance(engine, Storing):
            continue
        volumes = engine.open_volumes(output_of(details))
        found = volumes.volumes()
        for volume in found:
            print_line(f"run {details.plan.run}: {volume.words}", err=True)
        if found:
            doomed.append((volumes, found))
    if not doomed:
        print_line("no volume was made for them that is still there", err=True)
        return
    if not yes:
        if not sys.stdin.isatty():
            raise InputError("volumes are deleted only if somebody says so", hint="say `--yes`")
        confirm("Delete that, for ever?")
    for volumes, found in doomed:
        volumes.remove([volume.name for volume in found])
        for volume in found:
            print_line(f"deleted the {volume.kind} {volume.name}")
