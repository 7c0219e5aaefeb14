"""The folders in which drumline keeps the data and the cache of a user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from drumline import __version__
from drumline.errors import EngineError
from drumline.runtime.private import read_regular, write_file
from drumline.store.trust import require_trusted

RUNS = "runs"  # a folder for each run
JOURNAL = "events.jsonl"  # in a run's folder: events and decisions
LOCK = "supervisor.lock"  # in a run's folder: locked by its supervisor
PLAN = "plan.json"  # in a run's folder: the plan
LAUNCH = "launch.json"  # in a run's folder: where, when and from which code the run was launched
VERSION_FILE = "version"  # in the home: the version of the store, and of the drumline that wrote it first
STORE_VERSION = 2  # of journals, plans and this folder; a store without a version file has version 1

_FILES = ("last-run", "index.sqlite", VERSION_FILE)  # in the home, beside the folders
_VERSION_BYTES = 100
_RUN_FILES = (PLAN, LAUNCH, JOURNAL, LOCK)


def home_of(environ: Mapping[str, str]) -> Path:
    """Return the user's drumline folder: DRUMLINE_HOME, else a folder below XDG_DATA_HOME; it need not exist.

    Raise EngineError if another user could have changed its content. The version of the store is not checked: commands
    that read the store call `access.open_home`.
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
    """Record that all files of the store have the present version."""
    write_file(home / VERSION_FILE, f"{STORE_VERSION} {__version__}\n".encode())


def read_version(home: Path) -> tuple[int, str]:
    """Return the version of a store, and the version of the drumline that wrote it first.

    Without a version file, or if the home cannot be read, return 1 and an empty text. Raise EngineError if the file
    cannot be read, or holds no version.
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
    """Raise EngineError if another user could have changed the content of a drumline folder."""
    require_trusted(home, "DRUMLINE_HOME", _FILES)
    require_trusted(f"{home}/{RUNS}", "DRUMLINE_HOME")


def check_run(folder: str) -> None:
    """Raise EngineError if another user could have changed the files of a run: its plan has commands."""
    require_trusted(folder, "DRUMLINE_HOME", _RUN_FILES)


def cache_of(environ: Mapping[str, str]) -> Path:
    """Return the cache folder, shared by all homes of the user; it need not exist.

    Raise EngineError if another user could have changed its content: it has the interpreters of environments.
    """
    if cache := environ.get("XDG_CACHE_HOME"):
        folder = f"{_absolute(cache)}/drumline"
    else:
        folder = f"{_user_dir(environ)}/.cache/drumline"
    require_trusted(folder, "XDG_CACHE_HOME")
    require_trusted(f"{folder}/environments", "XDG_CACHE_HOME")
    return Path(folder)


def run_ids(home: Path) -> set[str]:
    """Return the ids of all runs that have a folder; raise EngineError if the folder of all runs cannot be read."""
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
