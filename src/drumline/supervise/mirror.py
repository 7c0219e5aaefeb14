"""Keep a copy of the run folder of a supervisor on another machine: the journal, the logs, and other files of views.

Only files with names that follow from the plan and the journal are requested, each with a size limit. Growing files are
copied by offset. The journal is written after the logs, so that a command that reads the end of a run from the copy
also finds every log line before it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from drumline.errors import EngineError
from drumline.plan.types import TENSORBOARD, Plan
from drumline.run.event import ReplicaExited, ReplicaStarted
from drumline.run.traces import ERROR, LOG, MARKS, METRICS, PLACES, REPORT, STACKS, STEPS, UNREACHED, trace_dir
from drumline.runtime.private import make_folder, open_file, open_regular, write_file
from drumline.store.folder import RunFolder
from drumline.store.home import JOURNAL
from drumline.store.journal import parse_line
from drumline.supervise.message import MOST_BYTES, MOST_PIECES, Answer, Found, Piece

Ask = Callable[[Sequence[Piece]], Coroutine[Any, Any, Answer]]

_OVERLAP_BYTES = 64  # the last bytes of the copy are read again, to notice that a growing file was replaced
_MOST_JOURNAL_BYTES = 1 << 28
_MOST_LINE_BYTES = 1 << 22
_GROWING = (LOG, MARKS, STEPS)
_MOST_OF_WHOLE = {REPORT: 1 << 16, ERROR: 1 << 20, STACKS: 1 << 22, METRICS: 1 << 18, PLACES: 1 << 22}
_WHOLE_OF_INCARNATION = (REPORT, ERROR, STACKS, METRICS)
_UPDATES_PER_WHOLE = 4  # files that are replaced as a whole are copied less often
_MOST_ATTEMPT = 1_000_000
_MOST_REQUESTS = 10_000  # in one update


class Mirror:
    """The copy of a run folder; knows which incarnations may still write."""

    def __init__(self, folder: RunFolder, plan: Plan, ask: Ask) -> None:
        self.is_current = False  # the last update copied everything
        self._folder = folder
        self._ask = ask
        self._known = {*plan.all_ids, TENSORBOARD}
        self._growing: dict[str, bool] = {}  # folders of incarnations that may grow; true: the end is in the journal
        self._last: set[str] = set()  # folders of all incarnations of the last attempt
        self._attempt = 0
        self._updates = 0
        self._note(_content(folder.journal_file, _MOST_JOURNAL_BYTES).splitlines())

    async def update(self) -> Answer:
        """Update the copy; return the first answer, which has the state of the supervisor before the update."""
        answer, is_new, lines = await self._read_journal()
        self._note(lines.splitlines())
        self._updates += 1
        folders = [*self._growing] if answer.locked else sorted({*self._growing, *self._last})
        await self._copy_growing([f"{each}/{name}" for each in folders for name in _GROWING])
        ended = [each for each, has_ended in self._growing.items() if has_ended]
        if ended or not answer.locked or self._updates % _UPDATES_PER_WHOLE == 1:
            await self.copy_whole(folders)
        for each in ended:
            del self._growing[each]
        if is_new:
            write_file(self._folder.journal_file, lines)
        elif lines:
            _append(self._folder.journal_file, lines)
        return answer

    async def copy_whole(self, folders: Collection[str] = ()) -> None:
        """Copy the files that are replaced as a whole, of these folders or of all folders that may still change."""
        names = [f"{each}/{name}" for each in folders or self._growing for name in _WHOLE_OF_INCARNATION]
        names += [UNREACHED, f"attempts/{self._attempt}/{PLACES}"]
        wanted = [Piece(name, 0, _MOST_OF_WHOLE.get(name.rpartition("/")[2], 1 << 16)) for name in names]
        async for piece, found in self._read(wanted):
            path = self._folder.path / piece.name
            if found.data and found.size <= piece.limit and found.data != _content(path, piece.limit):
                make_folder(path.parent)
                write_file(path, found.data)

    async def _read_journal(self) -> tuple[Answer, bool, bytes]:
        """Request the journal; return the answer, whether the lines replace the copy, and the new complete lines."""
        size, tail = _end_of(self._folder.journal_file)
        answer = await self._ask([Piece(JOURNAL, size - len(tail), len(tail) + MOST_BYTES)])
        (found,) = answer.found
        if found.size > _MOST_JOURNAL_BYTES:
            raise EngineError(f"the journal of run {self._folder.id} has {found.size} bytes there, which is too much")
        self.is_current = size - len(tail) + len(found.data) >= found.size
        if not found.data.startswith(tail):
            return (answer, True, await self._read_anew()) if found.size else (answer, False, b"")
        new = found.data[len(tail) :]
        whole = new[: new.rfind(b"\n") + 1]
        if len(new) > _MOST_LINE_BYTES and not whole:
            raise EngineError(f"the journal of run {self._folder.id} has a line there that does not end")
        return answer, False, whole

    async def _read_anew(self) -> bytes:
        """Return the whole journal, which was replaced since it was copied: it was migrated."""
        data = b""
        while len(data) < _MOST_JOURNAL_BYTES:
            (found,) = (await self._ask([Piece(JOURNAL, len(data), MOST_BYTES)])).found
            data += found.data
            if not found.data or len(data) >= found.size:
                break
        self.is_current = False
        return data[: data.rfind(b"\n") + 1]

    async def _copy_growing(self, names: Sequence[str]) -> None:
        """Append to the copies of these files everything up to their present sizes."""
        until: dict[str, int] = {}
        for _ in range(_MOST_REQUESTS):
            if not names:
                break
            limit = max(1 << 16, MOST_BYTES // min(len(names), MOST_PIECES))
            tails = {name: _end_of(self._folder.path / name) for name in names}
            wanted = [Piece(name, size - len(tail), len(tail) + limit) for name, (size, tail) in tails.items()]
            more = []
            async for piece, found in self._read(wanted):
                size, tail = tails[piece.name]
                if not found.data.startswith(tail) or len(found.data) == len(tail):
                    continue  # no new bytes; or the file was replaced, and the copy is left as it is
                path = self._folder.path / piece.name
                make_folder(path.parent)
                _append(path, found.data[len(tail) :])
                if size - len(tail) + len(found.data) < until.setdefault(piece.name, found.size):
                    more.append(piece.name)
            names = more

    async def _read(self, wanted: Sequence[Piece]) -> AsyncIterator[tuple[Piece, Found]]:
        """Yield these pieces with their data, from as many requests as needed."""
        for pieces in _requests(wanted):
            answer = await self._ask(pieces)
            for pair in zip(pieces, answer.found, strict=True):
                yield pair

    def _note(self, lines: Iterable[bytes]) -> None:
        """Add the incarnations that these lines of the journal name."""
        for line in lines:
            if len(line) > _MOST_LINE_BYTES:
                continue
            _, entry = parse_line(line)
            event = entry.event if entry else None
            if not isinstance(event, ReplicaStarted | ReplicaExited) or event.replica not in self._known:
                continue
            if not 0 <= event.attempt <= _MOST_ATTEMPT or not 0 <= event.incarnation <= _MOST_ATTEMPT:
                continue
            if event.attempt > self._attempt:
                self._attempt = event.attempt
                self._last.clear()
            folder = trace_dir(event.replica, event.attempt, event.incarnation)
            self._last.add(folder)
            self._growing[folder] = isinstance(event, ReplicaExited)


def _requests(wanted: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Divide pieces into requests that have at most MOST_PIECES and, if possible, MOST_BYTES."""
    some: list[Piece] = []
    for piece in wanted:
        if some and (len(some) == MOST_PIECES or sum(each.limit for each in some) + piece.limit > MOST_BYTES):
            yield some
            some = []
        some.append(piece)
    if some:
        yield some


def _end_of(path: Path) -> tuple[int, bytes]:
    """Return the size of a file and its last bytes; 0 and empty if it does not exist."""
    try:
        with open(path, "rb", opener=open_regular) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _OVERLAP_BYTES))
            return size, stream.read(_OVERLAP_BYTES)
    except FileNotFoundError:
        return 0, b""


def _content(path: Path, most: int) -> bytes:
    try:
        with open(path, "rb", opener=open_regular) as stream:
            return stream.read(most)
    except FileNotFoundError:
        return b""


def _append(path: Path, data: bytes) -> None:
    """Append to a file; if not all bytes can be written, restore its size and raise OSError."""
    file = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        size, written = os.fstat(file).st_size, 0
        try:
            while written < len(data):
                written += os.write(file, data[written:])
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)
