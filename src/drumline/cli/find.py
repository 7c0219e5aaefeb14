"""The run that an id names, as it stands now."""

from __future__ import annotations

from pathlib import Path

from drumline.cli.text import warn
from drumline.errors import EngineError
from drumline.store.folder import RunFolder, find_folder
from drumline.store.reach import MISUNDERSTOOD, Reach, read_reach


def find_run(home: Path, run: str) -> RunFolder:
    """Return the folder of a run, as `find_folder`; a copy of one that is supervised elsewhere is brought up to date.

    Warn if its supervisor cannot be reached, and raise EngineError if that is of a version that is not understood.
    """
    folder = find_folder(home, run)
    reach = look_around(folder)
    if reach and reach.problem:
        if reach.state == MISUNDERSTOOD:
            raise EngineError(reach.message, hint=reach.hint)
        warn(f"run {run} is shown as of the last contact; its supervisor cannot be reached: {reach.message}")
    return folder


def look_around(folder: RunFolder) -> Reach | None:
    """Have a run followed that is supervised elsewhere; return how its supervisor stands, unless the run is over."""
    if read_reach(folder.path) is None:
        return None
    from drumline.supervise.reach import bring_up_to_date  # noqa: PLC0415 - few runs are supervised elsewhere

    return bring_up_to_date(folder)
