"""Engines of other packages: their entry points `drumline.engines`.

`importlib.metadata` would find them too, but costs every supervisor 7 MB.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_GROUP = "[drumline.engines]"


def find_plugins(path: Iterable[str]) -> dict[str, str]:
    """Return the packages of these engines by name, as installed in these folders; the first of a name counts."""
    found: dict[str, str] = {}
    for folder in path:
        for file in sorted(Path(folder).glob("*-info/entry_points.txt")):
            for name, package in _read(file).items():
                found.setdefault(name, package)
    return found


def _read(file: Path) -> dict[str, str]:
    try:
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, ValueError):
        return {}
    if _GROUP not in lines:
        return {}
    entries: dict[str, str] = {}
    for line in lines[lines.index(_GROUP) + 1 :]:
        if line.startswith("["):
            break
        name, is_entry, package = line.partition("=")
        if is_entry and not line.startswith(("#", ";")):
            entries[name.strip()] = package.strip()
    return entries
