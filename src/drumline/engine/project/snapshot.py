"""A snapshot of a folder: its entries with the hashes of its files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from drumline.engine.project.tree import Entry, Tree, open_beneath, read_file, walk_project
from drumline.record import Record

_PIECE_BYTES = 1 << 20


class Item(Record):
    """An entry, and the hash of its content if it is a file."""

    entry: Entry
    digest: str = ""
    mtime_ns: int = 0


class Snapshot:
    """The entries of a folder to send; of a file that changes meanwhile, one consistent state is kept in memory."""

    def __init__(self, root: Path, tree: Tree) -> None:
        self._root = root
        self._items: dict[str, Item] = {}
        self._held: dict[str, bytes] = {}  # contents of files that change
        self._by_digest: dict[str, Item] = {}
        self.warnings = tree.warnings
        for entry in tree.entries:
            if entry.kind != "file":
                self._items[entry.path] = Item(entry)
            elif known := _digest(root, entry.path):
                digest, found = known
                item = Item(entry.replace(size_bytes=found.st_size), digest, found.st_mtime_ns)
                self._items[entry.path] = self._by_digest[digest] = item
            else:
                self._hold(entry)

    @property
    def files(self) -> int:
        """Return the number of files and links."""
        return sum(item.entry.kind != "folder" for item in self._items.values())

    @property
    def size_bytes(self) -> int:
        """Return the size of all files."""
        return sum(item.entry.size_bytes for item in self._items.values())

    @property
    def manifest(self) -> bytes:
        """Return all entries by path as JSON, in the form that the agent's `receive` reads."""
        return json.dumps({path: _line(item) for path, item in self._items.items()}).encode()

    @property
    def name(self) -> str:
        """Return a name that depends only on the paths and contents: 16 hexadecimal digits."""
        lines = {path: _line(item)[:3] for path, item in self._items.items()}
        return hashlib.sha256(json.dumps(lines).encode()).hexdigest()[:16]

    @property
    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each content by its hash."""
        return {item.digest: item.entry.size_bytes for item in self._items.values() if item.digest}

    def pieces(self, digest: str, most_bytes: int) -> Iterator[bytes]:
        """Yield the content with this hash in pieces; fewer bytes if the file has become shorter or unreadable."""
        if digest in self._held:
            held = self._held[digest]
            yield from (held[at : at + most_bytes] for at in range(0, len(held) or 1, most_bytes))
            return
        item = self._by_digest[digest]
        left = item.entry.size_bytes
        try:
            with open_beneath(self._root, item.entry.path) as file:
                while True:
                    piece = file.read(min(left, most_bytes))
                    left -= len(piece)
                    yield piece
                    if not piece or not left:
                        return
        except OSError:
            yield b""

    def renew(self, digest: str) -> None:
        """Read the files with this former hash again, and keep their content in memory."""
        for path, item in list(self._items.items()):
            if item.digest == digest:
                del self._items[path]
                self._hold(item.entry)

    def _hold(self, entry: Entry) -> None:
        """Keep the content of a file in memory, if it still exists."""
        found = read_file(self._root, entry)
        if found is None:
            return
        data = found[0]
        digest = hashlib.sha256(data).hexdigest()
        self._held[digest] = data
        self._items[entry.path] = self._by_digest[digest] = Item(entry.replace(size_bytes=len(data)), digest)


def take_snapshot(root: Path, *, without: Collection[Path] = (), rules: bool = True) -> Snapshot:
    """Return a snapshot of a project; without `rules`, ignore files have no effect. Raise InputError if unreadable."""
    return Snapshot(root, walk_project(root, without=without, rules=rules))


def _line(item: Item) -> tuple[str, str, bool, int, int]:
    entry = item.entry
    return entry.kind, item.digest or entry.target, entry.executable, item.mtime_ns, entry.size_bytes


def _digest(root: Path, path: str) -> tuple[str, os.stat_result] | None:
    """Return the hash and status of a file; None if it changes meanwhile, does not exist or cannot be read."""
    found = hashlib.sha256()
    try:
        with open_beneath(root, path) as file:
            before = os.fstat(file.fileno())
            while piece := file.read(_PIECE_BYTES):
                found.update(piece)
            after = os.fstat(file.fileno())
    except OSError:
        return None
    is_unchanged = (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
    return (found.hexdigest(), after) if is_unchanged else None
