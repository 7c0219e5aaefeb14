"""Open a store: migrate a store of an older version, refuse a store of a newer version."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from drumline import __version__
from drumline.errors import InputError
from drumline.store.home import RUNS, STORE_VERSION, home_of, read_version
from drumline.store.migrate import migrate_home


def open_home(environ: Mapping[str, str]) -> Path:
    """Return the user's drumline folder, as `home_of` does, and migrate its store if it is older.

    Raise InputError for a store of a newer version.
    """
    home = home_of(environ)
    version, writer = read_version(home)
    if version > STORE_VERSION:
        raise InputError(
            f"the runs in {home} were written by drumline {writer} with version {version} of the store;"
            f" this is drumline {__version__}, which knows version {STORE_VERSION}",
            hint=f"install drumline {writer} or newer, or set DRUMLINE_HOME to another folder;"
            " `drumline rm ID` removes a run all the same",
        )
    if version < STORE_VERSION and os.path.isdir(home / RUNS):  # noqa: PTH112 - false where it may not be looked at
        migrate_home(home)
    return home
