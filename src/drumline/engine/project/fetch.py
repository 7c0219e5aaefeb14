"""Fetch what a run has written on a host: only what is new, in the order in which it was written.

Whoever reads here finds no half file: each appears under its name when it is whole, and nothing that was written after
a file appears before it. So a checkpoint is never named before it is here.
"""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Collection, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from drumline.engine.project.carry import Shell, ask
from drumline.errors import EngineError, NotFoundError

SCRATCH = ".drumline-fetch"  # beside what is fetched, for what is on its way
YOUNG_SECONDS = 2.0  # whoever wrote a file so lately may not be done with it
_BATCH_BYTES = 8 << 20


class Found(NamedTuple):
    """Something over there."""

    path: str
    kind: str  # "file", "folder" or "link"
    size_bytes: int
    mtime_ns: int
    executable: bool
    target: str
    is_young: bool  # written in the last seconds


class Fetched(NamedTuple):
    """What is here now."""

    paths: frozenset[str]
    size_bytes: int  # of all of it
    taken_bytes: int  # that travelled
    is_whole: bool  # nothing was left for the next time


async def fetch(
    shell: Shell,
    folder: str,
    local: Path,
    *,
    path: str = ".",
    python: str = "python3",
    settled: bool = False,
    anyhow: bool = False,
    known: Collection[str] = (),
) -> Fetched:
    """Bring a folder of a host here, or one file or folder in it, under its name.

    Unless it is `settled` there, what was written just now is left for the next time, with all that came after it. A
    file that changes on its way is not taken, unless it is to come `anyhow`. What is `known` to have come from there,
    and is there no more, goes. Raise NotFoundError if there is nothing.
    """
    errand = _Errand(shell, folder, path, local, python, anyhow=anyhow)
    found = await errand.list_all()
    try:
        return await errand.bring(found, settled=settled, known=known)
    except OSError as error:
        name = error.filename2 or error.filename or local
        raise EngineError(f"{name} cannot be written here: {error.strerror}") from None


class _Errand:
    """One folder on its way here."""

    def __init__(self, shell: Shell, folder: str, path: str, local: Path, python: str, *, anyhow: bool) -> None:
        self._shell = shell
        self._request = {"folder": folder, "path": path, "young_seconds": YOUNG_SECONDS}
        self._local = local
        self._python = python
        self._anyhow = anyhow
        self._taken = 0

    async def list_all(self) -> list[Found]:
        """Everything over there that has a place here, the oldest first."""
        answer, _ = await ask(self._shell, self._python, "offer", self._request)
        if answer["absent"]:
            raise NotFoundError(f"{self._shell.host} has no {answer['path']}")
        found = [Found(*each) for each in answer["entries"]]
        folders = {each.path for each in found if each.kind == "folder"} | {""}
        # Whatever a host says, nothing is written outside of the folder that is meant.
        safe = (each for each in found if _is_inside(each) and posixpath.dirname(each.path) in folders)
        return sorted(safe, key=lambda each: (each.mtime_ns, each.path))

    async def bring(self, found: list[Found], *, settled: bool, known: Collection[str]) -> Fetched:
        """Take what is new; then let go of what is no more."""
        for each in sorted(found, key=lambda each: each.path):
            if each.kind == "folder":
                self._make_folder(self._local / each.path)
        ready = list(_ready(found, settled=settled))
        wanted = [each for each in ready if each.kind == "file" and not self._has(each)]
        unchanged = await self._take(wanted)
        is_whole = unchanged and len(ready) == sum(each.kind != "folder" for each in found)
        if unchanged:
            for each in ready:
                if each.kind == "link":
                    self._link(each)
        there = frozenset(each.path for each in found)
        if is_whole:
            self._clear([path for path in known if path not in there])
        shutil.rmtree(self._scratch, ignore_errors=True)
        return Fetched(there, sum(each.size_bytes for each in found), self._taken, is_whole)

    async def _take(self, files: list[Found]) -> bool:
        """Take these, one after the other; False if one was changed meanwhile: what came after it is not taken."""
        if files:
            self._scratch.mkdir(parents=True, exist_ok=True)
        for batch in _batches([(each, self._begun(each)) for each in files]):
            # What comes anyhow, and at once, comes up to its end, however long it is by now.
            asked = [
                -_BATCH_BYTES if self._anyhow and (at, length) == (0, each.size_bytes) else length
                for each, at, length in batch
            ]
            parts = [
                (each.path, at, most, each.size_bytes, each.mtime_ns, self._anyhow or _grows(each))
                for (each, at, _), most in zip(batch, asked, strict=True)
            ]
            answer, data = await ask(self._shell, self._python, "offer", {**self._request, "parts": parts})
            at_byte = 0
            for (each, at, _), most, length in zip(batch, asked, answer["lengths"], strict=True):
                if length < 0:
                    self._part(each).unlink(missing_ok=True)
                    return False
                taken = each._replace(size_bytes=length) if most < 0 else each
                self._append(taken, at, data[at_byte : at_byte + length])
                at_byte += length
        return True

    def _append(self, file: Found, at: int, data: bytes) -> None:
        part = self._part(file)
        self._taken += len(data)
        with part.open("r+b" if at else "wb") as into:
            into.seek(at)
            into.write(data)
        if at + len(data) < file.size_bytes:
            return
        if file.executable:
            part.chmod(part.stat().st_mode | 0o111)
        os.utime(part, ns=(file.mtime_ns, file.mtime_ns))
        self._put(part, file)

    def _put(self, part: Path, found: Found) -> None:
        place = self._local / found.path
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        part.replace(place)

    def _link(self, found: Found) -> None:
        place = self._local / found.path
        if place.is_symlink() and str(place.readlink()) == found.target:
            return
        self._scratch.mkdir(parents=True, exist_ok=True)
        part = self._scratch / "link"
        part.unlink(missing_ok=True)
        part.symlink_to(found.target)
        self._put(part, found)

    def _make_folder(self, place: Path) -> None:
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            place.unlink()
        place.mkdir(parents=True, exist_ok=True)

    def _clear(self, gone: list[str]) -> None:
        for path in sorted(gone, reverse=True):
            place = self._local / path
            if place.is_symlink() or not place.is_dir():
                place.unlink(missing_ok=True)
            elif not any(place.iterdir()):
                place.rmdir()

    def _has(self, file: Found) -> bool:
        """Whether it is here as it is there; its time says so, since it came along."""
        try:
            known = os.lstat(self._local / file.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (known.st_size, known.st_mtime_ns) == (file.size_bytes, file.mtime_ns)

    def _begun(self, file: Found) -> int:
        """How much of it came before a connection broke."""
        part = self._part(file)
        return min(part.stat().st_size, file.size_bytes) if part.exists() else 0

    def _part(self, file: Found) -> Path:
        name = f"{file.path}\n{file.size_bytes}\n{file.mtime_ns}"
        return self._scratch / sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]

    @property
    def _scratch(self) -> Path:
        return self._local / SCRATCH


def _grows(found: Found) -> bool:
    """Whether it is appended to all the time, and good as far as it goes."""
    return ".tfevents." in found.path


def _ready(found: list[Found], *, settled: bool) -> Iterator[Found]:
    """What can be taken now."""
    waits = False
    for each in found:
        if each.kind == "folder":
            continue
        waits |= each.is_young and not settled and not _grows(each)
        if not waits or _grows(each):
            yield each


def _batches(files: list[tuple[Found, int]]) -> Iterator[list[tuple[Found, int, int]]]:
    batch: list[tuple[Found, int, int]] = []
    room = _BATCH_BYTES
    for file, begun in files:
        at = begun
        while True:
            length = min(room, file.size_bytes - at)
            batch.append((file, at, length))
            at, room = at + length, room - length
            if room <= 0 or len(batch) >= 1000:
                yield batch
                batch, room = [], _BATCH_BYTES
            if at >= file.size_bytes:
                break
    if batch:
        yield batch


def _is_inside(found: Found) -> bool:
    """Whether a path is below the folder, and a link leads to something below it."""
    names = found.path.split("/")
    if not found.path or any(name in ("", ".", "..", SCRATCH) for name in names):
        return False
    aim = posixpath.normpath(posixpath.join(posixpath.dirname(found.path), found.target)) if found.target else "."
    return not aim.startswith(("/", "../")) and aim != ".."
