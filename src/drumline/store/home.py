"""The folders of drumline: data and cache of a user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from drumline import __version__
from drumline.errors import EngineError
from drumline.runtime.private import read_regular, write_file
from drumline.store.trust import require_trusted

RUNS = "runs"  # a folder for each run
JOURNAL = "events.jsonl"  # in a run's folder: what happened
LOCK = "supervisor.lock"  # in a run's folder: held by its supervisor
PLAN = "plan.json"  # in a run's folder: what runs
LAUNCH = "launch.json"  # in a run's folder: where, when and from which code it was launched
VERSION_FILE = "version"  # in the home: the version of the store, and of the drumline that wrote it first
STORE_VERSION = 2  # of journals, plans and this folder; a store without one is of version 1

_FILES = ("last-run", "index.sqlite", VERSION_FILE)  # in the home, beside the folders
_VERSION_BYTES = 100
_RUN_FILES = (PLAN, LAUNCH, JOURNAL, LOCK)


def home_of(environ: Mapping[str, str]) -> Path:
    """Return the user's drumline folder: DRUMLINE_HOME, else where XDG wants data; it need not exist.

    Raise EngineError if another user could have changed what is in it. The version of the store is not checked:
    commands that read the store call `access.open_home`.
    """
    if own := environ.get("DRUMLINE_HOME"):
        home = _absolute(own)
    elif data := environ.get("XDG_DATA_HOME"):
        home = f"{_absolute(data)}/drumline"
    else:
        home = f"{_user_dir(environ)}/.local/share/drumline"
    check_home(home)
    return Path(home)


def write_version(home: Path) -> None:
    """Record that the whole store has this version."""
    write_file(home / VERSION_FILE, f"{STORE_VERSION} {__version__}\n".encode())


def read_version(home: Path) -> tuple[int, str]:
    """Return the version of a store and of the drumline that wrote it first; 1 if there is no version file.

    Raise EngineError if the file cannot be read, or holds no version. A home that cannot be entered has none.
    """
    file = home / VERSION_FILE
    try:
        version, _, writer = read_regular(file, _VERSION_BYTES).decode().partition(" ")
        return int(version), writer.strip()
    except (FileNotFoundError, NotADirectoryError):
        return 1, ""
    except (OSError, ValueError) as error:
        if not os.access(home, os.X_OK):
            return 1, ""
        why = error.strerror if isinstance(error, OSError) else "it holds no version"
        raise EngineError(
            f"the version of the store cannot be read from {file}: {why}",
            hint=f"`rm {file}`: the next command writes it again",
        ) from None


def check_home(home: str) -> None:
    """Raise EngineError if another user could have changed what is in a drumline folder."""
    require_trusted(home, "DRUMLINE_HOME", _FILES)
    require_trusted(f"{home}/{RUNS}", "DRUMLINE_HOME")


def check_run(folder: str) -> None:
    """Raise EngineError if another user could have changed what is in a run's folder: its plan names commands."""
    require_trusted(folder, "DRUMLINE_HOME", _RUN_FILES)


def cache_of(environ: Mapping[str, str]) -> Path:
    """Return the cache folder, shared by all homes of the user; it need not exist.

    Raise EngineError if another user could have changed what is in it: the interpreters of environments are there.
    """
    if cache := environ.get("XDG_CACHE_HOME"):
        folder = f"{_absolute(cache)}/drumline"
    else:
        folder = f"{_user_dir(environ)}/.cache/drumline"
    require_trusted(folder, "XDG_CACHE_HOME")
    require_trusted(f"{folder}/environments", "XDG_CACHE_HOME")
    return Path(folder)


def run_ids(home: Path) -> set[str]:
    """Return all runs that have a folder; raise EngineError if they cannot be read."""
    try:
        with os.scandir(f"{home}/{RUNS}") as entries:
            return {entry.name for entry in entries if entry.name.isascii() and entry.name.isdecimal()}
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise EngineError(
            f"cannot read the runs in {home}: {error.strerror}", hint="set DRUMLINE_HOME to a folder of your own"
        ) from None


def _user_dir(environ: Mapping[str, str]) -> str:
    return _absolute(environ.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"{os.getcwd()}/{path}"  # noqa: PTH109
