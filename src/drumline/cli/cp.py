"""``drumline cp``: copy files from or to the output of a run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from drumline.cli.inspect import find_output
from drumline.cli.terminal import print_warning
from drumline.errors import InputError

# The number of a run, a colon and a path; everything else is a file of this machine.
_OF_RUN = re.compile(r"([0-9]+(?:\.[0-9]+)?):(.*)", re.DOTALL)


@click.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
def command(source: str, target: str) -> None:
    """Copy a file or a folder: `ID:PATH` is a path of a run, everything else is on this machine.

    PATH is relative to the run's OUTPUT_DIR, or absolute where its replicas run. As with `cp -r`, an existing folder is
    copied into; otherwise the copy gets the name of the target.
    """
    from_run, to_run = _OF_RUN.fullmatch(source), _OF_RUN.fullmatch(target)
    if from_run and to_run:
        raise InputError("both paths are of a run", hint="copy to this machine first, and from here to the other run")
    if from_run:
        for warning in find_output(from_run[1]).fetch(from_run[2], Path(target)):
            print_warning(warning)
    elif to_run:
        if not os.path.lexists(source):
            raise InputError(f"there is no {source}")
        find_output(to_run[1]).put(Path(source), to_run[2])
    else:
        raise InputError("neither path is of a run", hint="write `ID:PATH`, as in `drumline cp 4:checkpoint .`")
