"""The size of a project, and its largest parts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping

from drumline.engine.project.tree import Entry, Tree, printable
from drumline.words import decimal_size

_LARGEST = 5  # the number of folders and files that are named


def count_files(tree: Tree) -> int:
    """Return the number of files and links."""
    return sum(entry.kind != "folder" for entry in tree.entries)


def size_bytes(tree: Tree) -> int:
    """Return the size of all files together."""
    return sum(entry.size_bytes for entry in tree.entries)


def list_largest(tree: Tree) -> str:
    """Return the largest folders and files, a line for each."""
    return "\n".join(f"  {printable(name)}  {decimal_size(amount)}" for name, amount in _largest(tree.entries))


def _largest(entries: Iterable[Entry]) -> list[tuple[str, int]]:
    """Return the largest folders and files with their sizes, none inside another.

    A folder of which one child has 90 % of the size is replaced by that child.
    """
    sizes: Counter[str] = Counter()
    children: dict[str, set[str]] = {}
    for entry in entries:
        path, size = entry.path, entry.size_bytes
        if entry.kind == "folder":
            continue
        sizes[path] += size
        while path:
            parent = os.path.dirname(path)
            children.setdefault(parent, set()).add(path)
            sizes[f"{parent}/" if parent else ""] += size
            path = parent
    found = []
    for top in children.get("", ()):
        path = top
        while path in children:
            inner = max(children[path], key=lambda each: (_size(sizes, each), each))
            if _size(sizes, inner) < 0.9 * _size(sizes, path):
                break
            path = inner
        found.append((f"{path}/" if path in children else path, _size(sizes, path)))
    return sorted(found, key=lambda each: (-each[1], each[0]))[:_LARGEST]


def _size(sizes: Mapping[str, int], path: str) -> int:
    return sizes.get(f"{path}/", 0) or sizes.get(path, 0)
