"""``drumline cp``: copy what a run has written, or something to it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from drumline.cli.inspect import find_output
from drumline.cli.terminal import print_warning
from drumline.errors import InputError

# A run's number, with the path there behind a colon; everything else is a file of this machine.
_THERE = re.compile(r"([0-9]+(?:\.[0-9]+)?):(.*)", re.DOTALL)


@click.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
def command(source: str, target: str) -> None:
    """Copy a file or a folder: `ID:PATH` is of a run, everything else of this machine.

    PATH is relative to the run's OUTPUT_DIR, or absolute where its replicas run. As with `cp -r`, a folder that is
    there is copied into; else the copy gets that name.
    """
    there, here = _THERE.fullmatch(source), _THERE.fullmatch(target)
    if there and here:
        raise InputError("both are of a run", hint="copy the first to this machine, and from there to the other")
    if there:
        for warning in find_output(there[1]).fetch(there[2], Path(target)):
            print_warning(warning)
    elif here:
        if not os.path.lexists(source):
            raise InputError(f"there is no {source}")
        find_output(here[1]).put(Path(source), here[2])
    else:
        raise InputError("neither is of a run", hint="say `ID:PATH`, as in `drumline cp 4:checkpoint .`")
