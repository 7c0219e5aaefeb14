"""Where drumline keeps what it knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from drumline.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path  # `status` starts a twentieth faster without it

RUNS = "runs"  # a folder for each run
JOURNAL = "events.jsonl"  # in a run's folder: what happened
LOCK = "supervisor.lock"  # in a run's folder: held by its supervisor


def home_of(environ: Mapping[str, str]) -> Path:
    """The user's drumline folder: DRUMLINE_HOME, else where XDG wants data; it need not exist."""
    from pathlib import Path  # noqa: PLC0415

    return Path(home_dir(environ))


def home_dir(environ: Mapping[str, str]) -> str:
    """The same as text."""
    if own := environ.get("DRUMLINE_HOME"):
        return _absolute(own)
    if data := environ.get("XDG_DATA_HOME"):
        return f"{_absolute(data)}/drumline"
    own = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111
    return f"{own}/.local/share/drumline"


def cache_of(environ: Mapping[str, str]) -> Path:
    """What can be made again, shared by all homes of the user, where XDG wants it; it need not exist."""
    from pathlib import Path  # noqa: PLC0415

    if cache := environ.get("XDG_CACHE_HOME"):
        return Path(f"{_absolute(cache)}/drumline")
    return Path(f"{environ.get('HOME') or os.path.expanduser('~')}/.cache/drumline")  # noqa: PTH111


def run_ids(home: str | Path) -> set[str]:
    """Every run that has a folder; raise EngineError if they may not be looked at."""
    try:
        with os.scandir(f"{home}/{RUNS}") as entries:
            return {entry.name for entry in entries if entry.name.isascii() and entry.name.isdecimal()}
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise EngineError(
            f"cannot read the runs in {home}: {error.strerror}", hint="set DRUMLINE_HOME to a folder of your own"
        ) from None


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"{os.getcwd()}/{path}"  # noqa: PTH109
