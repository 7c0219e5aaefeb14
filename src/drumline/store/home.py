"""Where drumline keeps what it knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def home_of(environ: Mapping[str, str]) -> Path:
    """The user's drumline folder: DRUMLINE_HOME, else where XDG wants data; it need not exist."""
    if own := environ.get("DRUMLINE_HOME"):
        return Path(own).absolute()
    if data := environ.get("XDG_DATA_HOME"):
        return Path(data).absolute() / "drumline"
    return Path(environ.get("HOME") or Path.home()) / ".local" / "share" / "drumline"
