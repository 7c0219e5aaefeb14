"""Engines of other packages: their entry points `drumline.engines`.

`importlib.metadata` would find them too, but costs every supervisor 7 MB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from drumline.record import Record

_GROUP = "[drumline.engines]"


class Plugin(Record):
    """An engine of another package: its name, the package to import, and what is installed under which name."""

    name: str
    package: str
    distribution: str


def find_plugins(path: Iterable[str]) -> list[Plugin]:
    """Return the engines that are installed in these folders; of a distribution that is there twice, the first."""
    found: list[Plugin] = []
    for folder in dict.fromkeys(path):
        known = {each.distribution for each in found}
        for file in sorted(Path(folder or ".").glob("*-info/entry_points.txt")):
            distribution = re.sub(r"[-_.]+", "-", re.split(r"-|\.egg", file.parent.name)[0]).lower()
            if distribution not in known:
                found += [Plugin(name, package, distribution) for name, package in _read(file)]
    return found


def _read(file: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, ValueError):
        return
    if _GROUP not in lines:
        return
    for line in lines[lines.index(_GROUP) + 1 :]:
        if line.startswith("["):
            break
        name, is_entry, package = line.partition("=")
        if is_entry and not line.startswith(("#", ";")):
            yield name.strip(), package.strip()
