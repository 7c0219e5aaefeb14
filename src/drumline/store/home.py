"""Where drumline keeps what it knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from drumline import __version__
from drumline.errors import EngineError
from drumline.store.trust import require_trusted

if TYPE_CHECKING:
    from pathlib import Path  # `status` starts a twentieth faster without it

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

    Raise EngineError if another user could have changed what is in it. Whatever the version of the store is:
    `access.open_home` is for commands that read it.
    """
    from pathlib import Path  # noqa: PLC0415

    return Path(home_dir(environ))


def home_dir(environ: Mapping[str, str]) -> str:
    """Return the same as text."""
    if own := environ.get("DRUMLINE_HOME"):
        home = _absolute(own)
    elif data := environ.get("XDG_DATA_HOME"):
        home = f"{_absolute(data)}/drumline"
    else:
        home = f"{_user_dir(environ)}/.local/share/drumline"
    check_home(home)
    return home


def write_version(home: str) -> None:
    """Say in a home that all in it is of this version."""
    path = f"{home}/{VERSION_FILE}"
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.write(descriptor, f"{STORE_VERSION} {__version__}\n".encode())
    os.close(descriptor)
    os.replace(f"{path}.new", path)  # noqa: PTH105


def read_version(home: str) -> tuple[int, str]:
    """Return the version of a store and of the drumline that wrote it first; 1 if the store does not say."""
    try:
        descriptor = os.open(f"{home}/{VERSION_FILE}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 1, ""
    try:
        version, _, writer = os.read(descriptor, _VERSION_BYTES).decode().partition(" ")
        return int(version), writer.strip()
    except (OSError, ValueError):
        return 1, ""  # it is damaged, and written anew
    finally:
        os.close(descriptor)


def check_home(home: str) -> None:
    """Raise EngineError if another user could have changed what is in a drumline folder."""
    require_trusted(home, "DRUMLINE_HOME", _FILES)
    require_trusted(f"{home}/{RUNS}", "DRUMLINE_HOME")


def check_run(folder: str) -> None:
    """Raise EngineError if another user could have changed what is in a run's folder: its plan names commands."""
    require_trusted(folder, "DRUMLINE_HOME", _RUN_FILES)


def cache_of(environ: Mapping[str, str]) -> Path:
    """Return the folder of what can be made again, shared by all homes of the user; it need not exist.

    Raise EngineError if another user could have changed what is in it: the interpreters of environments are there.
    """
    from pathlib import Path  # noqa: PLC0415

    if cache := environ.get("XDG_CACHE_HOME"):
        folder = f"{_absolute(cache)}/drumline"
    else:
        folder = f"{_user_dir(environ)}/.cache/drumline"
    require_trusted(folder, "XDG_CACHE_HOME")
    require_trusted(f"{folder}/environments", "XDG_CACHE_HOME")
    return Path(folder)


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


def _user_dir(environ: Mapping[str, str]) -> str:
    return _absolute(environ.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"{os.getcwd()}/{path}"  # noqa: PTH109
