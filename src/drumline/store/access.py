"""Opening a store: one of an older version is migrated, one of a newer version is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from drumline import __version__
from drumline.errors import InputError
from drumline.store.home import RUNS, STORE_VERSION, home_dir, read_version

if TYPE_CHECKING:
    from pathlib import Path  # `status` starts a twentieth faster without it


def open_home(environ: Mapping[str, str]) -> Path:
    """Return the user's drumline folder, as `home_of`; what is in it is of this version or can be read as if it were.

    Raise InputError for a store of a newer version.
    """
    from pathlib import Path  # noqa: PLC0415

    return Path(open_home_dir(environ))


def open_home_dir(environ: Mapping[str, str]) -> str:
    """Return the same as text."""
    home = home_dir(environ)
    version, writer = read_version(home)
    if version > STORE_VERSION:
        raise InputError(
            f"the runs in {home} were written by drumline {writer}, whose store has version {version};"
            f" this is drumline {__version__}, which knows version {STORE_VERSION}",
            hint=f"install drumline {writer} or newer, or set DRUMLINE_HOME to another folder;"
            " `drumline rm ID` removes a run all the same",
        )
    if version < STORE_VERSION and os.path.isdir(f"{home}/{RUNS}"):  # noqa: PTH112
        from drumline.store.migrate import migrate_home  # noqa: PLC0415 - once in the life of a store

        migrate_home(home)
    return home
