"""Engines of other packages, found by their entry points in the group `drumline.engines`.

`importlib.metadata` would find them too, but needs 7 MB of memory in every supervisor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from configparser import Error as ConfigError
from configparser import RawConfigParser
from pathlib import Path

from drumline.record import Record

_GROUP = "drumline.engines"


class Plugin(Record):
    """An engine of another package: its name, the package to import, and the installed distribution."""

    name: str
    package: str
    distribution: str


def find_plugins(path: Iterable[str]) -> list[Plugin]:
    """Return the engines of the distributions in these folders; if one is installed twice, of its first copy."""
    found: list[Plugin] = []
    for folder in dict.fromkeys(path):
        known = {each.distribution for each in found}
        for file in sorted(Path(folder or ".").glob("*-info/entry_points.txt")):
            distribution = re.sub(r"[-_.]+", "-", re.split(r"-|\.egg", file.parent.name)[0]).lower()
            if distribution not in known:
                found += [Plugin(name, package, distribution) for name, package in _read(file)]
    return found


def _read(file: Path) -> list[tuple[str, str]]:
    parser = RawConfigParser(delimiters=("=",), strict=False, allow_no_value=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    try:
        parser.read(file, encoding="utf-8")
    except (OSError, ValueError, ConfigError):
        return []
    entries = parser.items(_GROUP) if parser.has_section(_GROUP) else []
    return [(name, package) for name, package in entries if package]
