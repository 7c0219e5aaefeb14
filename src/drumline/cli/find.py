"""Find runs by the ids that the user types."""

from __future__ import annotations

import os
from pathlib import Path

from drumline.cli.text import warn
from drumline.errors import EngineError, InputError
from drumline.run.id import Target, parse_target
from drumline.store.access import open_home
from drumline.store.folder import RunFolder, find_folder
from drumline.store.reachability import MISUNDERSTOOD, Reachability, read_reachability


def find_run(home: Path, run: str) -> RunFolder:
    """Return the folder of a run as `find_folder` does; refresh the copy of a run that is supervised elsewhere.

    Warn if its supervisor cannot be reached; raise EngineError if the version of the supervisor is not compatible.
    """
    folder = find_folder(home, run)
    reach = refresh_copy(folder)
    if reach and reach.problem:
        if reach.state == MISUNDERSTOOD:
            raise EngineError(reach.message, hint=reach.hint)
        warn(f"run {run} is shown as of the last contact; its supervisor cannot be reached: {reach.message}")
    return folder


def refresh_copy(folder: RunFolder) -> Reachability | None:
    """Refresh the copy of a run that is supervised elsewhere; return how its supervisor can be reached."""
    if read_reachability(folder.path) is None:
        return None
    from drumline.supervise.requests import refresh_run  # noqa: PLC0415 - few runs are supervised elsewhere

    return refresh_run(folder)


def find_target(text: str) -> tuple[RunFolder, Target]:
    """Return the folder of the run that an id names, as `find_run` does, and the parts of the id.

    Raise InputError if the text is not an id, and NotFoundError if there is no such run.
    """
    target = parse_target(text)
    return find_run(open_home(os.environ), target.run), target


def find_whole_run(text: str, message: str, hint: str) -> RunFolder:
    """Return the folder of a run, as `find_run` does; raise InputError for the id of a replica.

    `message` and `hint` are those of this error; RUN in `hint` is replaced by the number of the run.
    """
    return find_run(open_home(os.environ), parse_whole_run(text, message, hint))


def parse_whole_run(text: str, message: str, hint: str) -> str:
    """Return the number of a run; raise InputError as `find_whole_run` does."""
    target = parse_target(text)
    if target.role is not None:
        raise InputError(f"{text}: {message}", hint=hint.replace("RUN", target.run))
    return target.run
