"""Where drumline keeps what it knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from drumline.errors import EngineError

RUNS = "runs"  # a folder for each run
JOURNAL = "events.jsonl"  # in a run's folder: what happened
LOCK = "supervisor.lock"  # in a run's folder: held by its supervisor


def home_of(environ: Mapping[str, str]) -> Path:
    """The user's drumline folder: DRUMLINE_HOME, else where XDG wants data; it need not exist."""
    if own := environ.get("DRUMLINE_HOME"):
        return Path(own).absolute()
    if data := environ.get("XDG_DATA_HOME"):
        return Path(data).absolute() / "drumline"
    return Path(environ.get("HOME") or Path.home()) / ".local" / "share" / "drumline"


def run_ids(home: Path) -> set[str]:
    """Every run that has a folder; raise EngineError if they may not be looked at."""
    try:
        with os.scandir(home / RUNS) as entries:
            return {entry.name for entry in entries if entry.name.isascii() and entry.name.isdecimal()}
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise EngineError(
            f"cannot read the runs in {home}: {error.strerror}", hint="set DRUMLINE_HOME to a folder of your own"
        ) from None
