"""Fetch the output of a run from a host, by the agent's verb `offer`: only new files, in the order of writing.

Each file appears under its name when it is complete, and no file appears before one that was written earlier. So an
index never names a checkpoint that is not fetched yet. The host is not trusted: whatever it answers, nothing is written
or removed outside of the target folder.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import stat
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from drumline.engine.agent.client import Agent
from drumline.engine.agent.frames import Frame
from drumline.engine.agent.send import FILES_LIMITS, FILES_SECONDS
from drumline.engine.project.beneath import Beneath, require_short, split, stays_beneath
from drumline.engine.untrusted import clean_text
from drumline.errors import EngineError, NotFoundError
from drumline.record import Record

T = TypeVar("T")

SCRATCH = ".drumline-fetch"  # beside the target, for incomplete files
YOUNG_SECONDS = 2.0  # a file that was written more recently may be incomplete
_BATCH_BYTES = 8 << 20
_PAUSE_ENTRIES = 64  # after so many, other tasks of the loop run
_MOST_BYTES = 1 << 62  # larger than any file, and in ns later than any modification time


class RemoteEntry(Record):
    """A file, folder or link on the host."""

    path: str
    kind: str  # "file", "folder" or "link"
    size_bytes: int
    mtime_ns: int
    executable: bool
    target: str
    is_young: bool  # written less than YOUNG_SECONDS before the list was made


class Fetched(Record):
    """The result of a fetch."""

    paths: frozenset[str]  # on the host, fetched now or earlier
    size_bytes: int  # of all files
    taken_bytes: int  # that were transferred
    is_whole: bool  # nothing was left for a later fetch
    left_out: tuple[str, ...] = ()  # links that lead out of the fetched folder


async def fetch(
    agent: Agent,
    folder: str,
    local: Path,
    *,
    path: str = ".",
    settled: bool = False,
    anyhow: bool = False,
    known: Collection[str] = (),
) -> Fetched:
    """Fetch a folder of a host into the folder `local`, or only the file or folder `path` in it, under its name.

    Unless nothing is written on the host any more (`settled`), a file that was written just now is left for a later
    fetch, with all later files. If a file changes during the transfer, it and all later files are left, too; with
    `anyhow` it is fetched in any state. Paths that are `known` from an earlier fetch and no longer exist on the host
    are removed here. Raise NotFoundError if the path does not exist, EngineError if the host's answer is invalid or
    this machine's disk cannot be written.
    """
    request = {"do": "offer", "folder": folder, "path": path, "young_seconds": YOUNG_SECONDS}
    answer = (await _ask(agent, request)).message
    part = "" if path in ("", ".") else posixpath.basename(posixpath.normpath(posixpath.join(folder, path)))
    found, left_out = await asyncio.to_thread(read_listing, agent.host, answer, part=part)
    try:
        local.mkdir(parents=True, exist_ok=True)
        with Beneath(local) as here:
            transfer = _Transfer(agent, request, here, anyhow=anyhow)
            return await transfer.run(found, left_out, settled=settled, known=known)
    except OSError as error:
        raise EngineError(f"{error.filename or local} cannot be written here: {error.strerror}") from None


async def _ask(agent: Agent, request: dict[str, Any]) -> Frame:
    return await agent.exchange(request, seconds=FILES_SECONDS, limits=FILES_LIMITS)


def read_listing(host: str, answer: Any, *, part: str = "") -> tuple[list[RemoteEntry], tuple[str, ...]]:
    """Return the entries of a host's list, oldest first, and the links that lead out; raise EngineError if invalid.

    If only a `part` was requested, all paths begin with its name, and a link must not lead out of that part.
    """
    try:
        if answer["absent"]:
            raise NotFoundError(f"{host} has no {clean_text(str(answer['path']))}")
        found = {each.path: each for each in map(_read_entry, answer["entries"])}
        if len(found) != len(answer["entries"]):
            raise ValueError("it names a path twice")
    except (KeyError, TypeError, ValueError) as error:
        raise _unusable(host, str(error)) from None
    if other := next((path for path in found if part and path.partition("/")[0] != part), None):
        raise _unusable(host, f"{other!r} is not in {part!r}")
    usable = [each for each in found.values() if SCRATCH not in each.path.split("/")]
    for each in usable:
        parent = each.path.rpartition("/")[0]
        if parent and (parent not in found or found[parent].kind != "folder"):
            raise _unusable(host, f"{parent!r} is not a folder in it")
    outside = {each.path for each in usable if each.kind == "link" and not _leads_inside(each, is_part=bool(part))}
    kept = sorted((each for each in usable if each.path not in outside), key=lambda each: (each.mtime_ns, each.path))
    return kept, tuple(sorted(outside))


def _unusable(host: str, why: str) -> EngineError:
    return EngineError(f"{host} sent a list of files that cannot be used: {clean_text(why, 300)}")


def _read_entry(data: Any) -> RemoteEntry:
    path, kind, size, mtime, executable, target, is_young = data
    if not (isinstance(path, str) and isinstance(target, str)):
        raise TypeError("a path is no text")
    if kind not in ("file", "folder", "link"):
        raise ValueError(f"{kind!r} is no kind of file")
    if not (
        type(size) is int and type(mtime) is int and 0 <= size < _MOST_BYTES and -_MOST_BYTES < mtime < _MOST_BYTES
    ):
        raise ValueError(f"{path!r} has an impossible size or time")
    split(path)
    require_short(path)
    return RemoteEntry(path, kind, size if kind == "file" else 0, mtime, executable is True, target, is_young is True)


def _leads_inside(link: RemoteEntry, *, is_part: bool) -> bool:
    path = link.path.partition("/")[2] if is_part else link.path
    return bool(path) and stays_beneath(path, link.target)


class _Transfer:
    """One transfer of a folder to this machine."""

    def __init__(self, agent: Agent, request: dict[str, Any], here: Beneath, *, anyhow: bool) -> None:
        self._agent = agent
        self._request = request
        self._here = here
        self._anyhow = anyhow
        self._taken = 0

    async def run(
        self, found: list[RemoteEntry], left_out: tuple[str, ...], *, settled: bool, known: Collection[str]
    ) -> Fetched:
        """Fetch new and changed files; then remove files that no longer exist on the host."""
        async for each in _unhurried(sorted(found, key=lambda each: each.path)):
            if each.kind == "folder":
                self._here.make_folder(each.path)
        self._here.make_folder(SCRATCH)
        ready = list(_ready(found, settled=settled))
        wanted = [each async for each in _unhurried(ready) if each.kind == "file" and not self._has(each)]
        unchanged = await self._take(wanted)
        is_whole = unchanged and len(ready) == sum(each.kind != "folder" for each in found)
        if unchanged:
            async for each in _unhurried(ready):
                if each.kind == "link":
                    self._link(each)
        there = frozenset(each.path for each in found)
        if is_whole:
            async for path in _unhurried(sorted((path for path in known if path not in there), reverse=True)):
                self._here.remove(path)
        self._here.remove_tree(SCRATCH)
        return Fetched(there, sum(each.size_bytes for each in found), self._taken, is_whole, left_out)

    async def _take(self, files: list[RemoteEntry]) -> bool:
        """Fetch these files in order; return False if one has changed meanwhile: later files are not fetched."""
        begun = [(each, self._begun(each)) async for each in _unhurried(files)]
        for batch in _batches(begun):
            # With `anyhow` a small file is read to its end, even if its size has changed.
            asked = [
                -_BATCH_BYTES if self._anyhow and (at, length) == (0, each.size_bytes) else length
                for each, at, length in batch
            ]
            parts = [
                (each.path, at, most, each.size_bytes, each.mtime_ns, self._anyhow or _grows(each))
                for (each, at, _), most in zip(batch, asked, strict=True)
            ]
            answer = await _ask(self._agent, {**self._request, "parts": parts})
            at_byte, data = 0, answer.data
            answered = zip(batch, asked, self._lengths(answer.message, asked, data), strict=True)
            async for (each, at, _), most, length in _unhurried(answered):
                if length < 0:
                    self._here.remove(_part(each))
                    return False
                taken = each.replace(size_bytes=length) if most < 0 else each
                self._append(taken, _part(each), at, data[at_byte : at_byte + length])
                at_byte += length
        return True

    def _lengths(self, answer: Any, asked: list[int], data: bytes) -> list[int]:
        """Return the length of each piece that the host sent, -1 for a file that has changed or no longer exists."""
        lengths = answer.get("lengths")
        if isinstance(lengths, list) and len(lengths) == len(asked) and all(type(each) is int for each in lengths):
            fits = all(
                length in (-1, most) or (most < 0 and 0 <= length <= -most)
                for length, most in zip(lengths, asked, strict=True)
            )
            if fits and sum(length for length in lengths if length > 0) == len(data):
                return lengths
        raise EngineError(f"{self._agent.host} sent other pieces of files than it was asked for")

    def _append(self, file: RemoteEntry, part: str, at: int, data: bytes) -> None:
        self._taken += len(data)
        descriptor = self._here.open(part, os.O_WRONLY | os.O_CREAT | (0 if at else os.O_TRUNC))
        with os.fdopen(descriptor, "wb") as into:
            into.seek(at)
            into.write(data)
            into.flush()
            if at + len(data) < file.size_bytes:
                return
            if file.executable:
                os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) | 0o111)
            os.utime(descriptor, ns=(file.mtime_ns, file.mtime_ns))
        self._here.move(part, self._here, file.path)

    def _link(self, found: RemoteEntry) -> None:
        if self._here.readlink(found.path) == found.target:
            return
        part = f"{SCRATCH}/link"
        self._here.remove(part)
        self._here.make_link(part, found.target)
        self._here.move(part, self._here, found.path)

    def _has(self, file: RemoteEntry) -> bool:
        """Return whether the local copy is up to date, by its size and modification time."""
        known = self._here.lstat(file.path)
        return known is not None and (known.st_size, known.st_mtime_ns) == (file.size_bytes, file.mtime_ns)

    def _begun(self, file: RemoteEntry) -> int:
        """Return how many bytes of a file an earlier, interrupted fetch has received."""
        known = self._here.lstat(_part(file))
        return min(known.st_size, file.size_bytes) if known else 0


async def _unhurried(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield these items, and let other tasks run at intervals: a host may list very many files."""
    for number, item in enumerate(items):
        if number % _PAUSE_ENTRIES == _PAUSE_ENTRIES - 1:
            await asyncio.sleep(0)
        yield item


def _part(file: RemoteEntry) -> str:
    """Return the path of a file until it is complete."""
    name = f"{file.path}\n{file.size_bytes}\n{file.mtime_ns}"
    return f"{SCRATCH}/{sha256(os.fsencode(name)).hexdigest()[:16]}"


def _grows(found: RemoteEntry) -> bool:
    """Return whether a file is only appended to, and valid at any length."""
    return ".tfevents." in found.path


def _ready(found: list[RemoteEntry], *, settled: bool) -> Iterator[RemoteEntry]:
    """Yield the entries that can be fetched now."""
    waits = False
    for each in found:
        if each.kind == "folder":
            continue
        waits |= each.is_young and not settled and not _grows(each)
        if not waits or _grows(each):
            yield each


def _batches(files: list[tuple[RemoteEntry, int]]) -> Iterator[list[tuple[RemoteEntry, int, int]]]:
    batch: list[tuple[RemoteEntry, int, int]] = []
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
