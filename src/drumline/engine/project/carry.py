"""Carry a folder to a host: what it has already stays, what it has not travels, and the rest is done over there."""

from __future__ import annotations

import asyncio
import errno
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Protocol

from drumline.engine.project.snapshot import Snapshot
from drumline.engine.project.there.receive import MARK
from drumline.engine.untrusted import clean_text, load_json, load_record, require_path, require_within
from drumline.errors import EngineError
from drumline.record import Record
from drumline.words import bulk

KEEP_SECONDS = 14 * 86_400.0  # contents that no run has used
KEEP_BYTES = 4 << 30
_BATCH_BYTES = 8 << 20  # at once, so that neither side holds more
_ANSWER_SECONDS = 3600.0  # a large project takes long to lay out
_ANSWER_BYTES = 32 << 20
_ANSWER_VALUES = 1 << 21
_MOST_BYTES = 1 << 62
_TRIES = 5  # while files change under us, or somebody removes what was there
_PACKAGE = "drumline.engine.project.there"
# Makes modules of the sources on stdin, as many bytes as it is told, and calls `main` of the last one.
_BOOT = """
import json, sys, types
for name, source in json.loads(sys.stdin.buffer.read(int(sys.argv[1]))):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
module.main()
"""


class Answer(Protocol):
    """How a command ended, and what it said."""

    @property
    def code(self) -> int:
        """Its exit code."""
        ...

    @property
    def out(self) -> bytes:
        """What it wrote on stdout."""
        ...

    @property
    def err(self) -> str:
        """And on stderr."""
        ...


class Shell(Protocol):
    """A way to run commands on a host."""

    host: str

    async def run(self, argv: Sequence[str], given: bytes = b"", *, seconds: float, most_bytes: int) -> Answer:
        """Run a command with this as its stdin.

        Raise EngineError if the host cannot be reached, if it takes longer, or if more is written on stdout.
        """
        ...


class Carried(Record):
    """What is there now."""

    folder: str  # in full
    files: int
    size_bytes: int
    sent_bytes: int  # what travelled
    written: int  # entries that are otherwise than before


async def carry(shell: Shell, snapshot: Snapshot, folder: str, *, store: str, python: str = "python3") -> Carried:
    """Have a project there as it is here; what was never carried into its folder stays. Contents are kept in the store.

    Raise EngineError if there is no room for it, or if nobody answers; then the folder is as it was.
    """
    return await _Errand(shell, snapshot, folder, store, python, "the project").go(mirror=False)


async def lay_out(
    shell: Shell, snapshot: Snapshot, folder: str, *, python: str = "python3", exactly: bool = True
) -> Carried:
    """Have a folder there like this one, `exactly` so or with what was never carried into it; no contents are kept."""
    errand = _Errand(shell, snapshot, folder, f"{folder}.incoming", python, "the output", expendable=True)
    return await errand.go(mirror=exactly)


async def ask(shell: Shell, python: str, script: str, request: object, rest: bytes = b"") -> tuple[Any, bytes]:
    """Run a script of `there` with this request; return what it answers, and the bytes behind that.

    The answer is a mapping whose numbers and strings are within limits; no more is known of it. Raise EngineError if
    there is none.
    """
    source = _sources(script)
    argv = [python, "-X", "utf8", "-ISc", _BOOT, str(len(source))]
    given = source + json.dumps(request).encode() + b"\n" + rest
    answer = await shell.run(argv, given, seconds=_ANSWER_SECONDS, most_bytes=_ANSWER_BYTES)
    is_marked, head, data = _split_answer(answer.out)
    if answer.code == 127:
        raise EngineError(
            f"{shell.host} has no `{python}`",
            hint="install Python 3.11 or newer there, or name it: `ssh: {python: PATH}`",
        )
    if answer.code or not is_marked:
        words = clean_text(answer.err.strip()).splitlines()
        raise EngineError(
            f"{shell.host} did not do what it was told: {words[-1] if words else f'exit code {answer.code}'}"
        )
    del answer  # it may be large
    try:
        found = await asyncio.to_thread(_read_answer, head)  # it may be long, and other hosts are heard meanwhile
    except ValueError as error:
        raise malformed(shell.host, error) from None
    if "error" in found:
        raise _refusal(shell.host, found)
    return found, data


def _split_answer(out: bytes) -> tuple[bool, bytes, bytes]:
    """Return whether there is an answer in what a script wrote, the answer, and the bytes behind it."""
    mark = out.find(MARK)
    begin = mark + len(MARK)
    end = out.find(b"\n", begin)
    return mark >= 0, out[begin : end if end >= 0 else None], out[end + 1 :] if end >= 0 else b""


def _read_answer(head: bytes) -> dict[str, Any]:
    if not head.isascii():  # a character that is no ASCII would make the decoded text up to four times as large
        raise ValueError("text that is not ASCII")
    found = load_json(head, most_values=_ANSWER_VALUES, signed=True, names=True)
    if not isinstance(found, dict):
        raise ValueError("not a mapping")
    return found


def malformed(host: str, error: object) -> EngineError:
    """Return what is raised for an answer that no script of ours gives."""
    return EngineError(f"{host} has answered something that drumline does not answer: {clean_text(str(error), 200)}")


class Received(Record):
    """What `receive` answers; without a manifest only what was damaged on its way, by the hash of its content."""

    damaged: tuple[str, ...]
    folder: str = ""
    free_bytes: int = 0
    missing: tuple[str, ...] = ()
    written: int = 0


def _sources(script: str) -> bytes:
    """Return a script of `there`, behind what it imports from there."""
    folder = resources.files(_PACKAGE)
    modules = [(f"{_PACKAGE}.{name}", folder.joinpath(f"{name}.py").read_text()) for name in ("beneath", script)]
    return json.dumps(modules).encode()


class _Errand:
    """One folder on its way to one host."""

    def __init__(
        self,
        shell: Shell,
        snapshot: Snapshot,
        folder: str,
        store: str,
        python: str,
        what: str,
        *,
        expendable: bool = False,
    ) -> None:
        self._shell = shell
        self._snapshot = snapshot
        self._folder = folder
        self._store = store
        self._python = python
        self._what = what
        self._expendable = expendable
        self._sender = secrets.token_hex(4)
        self._sent = 0

    async def go(self, *, mirror: bool) -> Carried:
        """Offer it, send what is missing, and offer it again, until nothing is."""
        answer = await self._offer((), b"", mirror=mirror)
        for _ in range(_TRIES):
            if not answer.missing:
                break
            self._require_room(answer)
            answer = await self._send(answer.missing, mirror=mirror)
        else:
            raise EngineError(f"{self._what} changes faster than it can be carried to {self._shell.host}")
        found = self._snapshot
        return Carried(clean_text(answer.folder), found.files, found.size_bytes, self._sent, answer.written)

    async def _send(self, missing: Sequence[str], *, mirror: bool) -> Received:
        """Send these, the last of them with the manifest: most folders are there after that."""
        sizes = self._snapshot.sizes
        known = sorted((sizes[digest], digest) for digest in missing if digest in sizes)
        batches = self._batches({digest: size for size, digest in known})  # a break costs the last one at most
        last: _Batch = ([], [])
        for batch in batches:
            if last[0]:
                self._renew((await self._ask(*last, b"", mirror=mirror)).damaged)
            last = batch
        return await self._offer(last[0], b"".join(last[1]), mirror=mirror)

    def _batches(self, sizes: Mapping[str, int]) -> Iterator[_Batch]:
        pieces: list[_Piece] = []
        data: list[bytes] = []
        room = _BATCH_BYTES
        for digest, size in sizes.items():
            at = 0
            for piece in self._snapshot.pieces(digest, _BATCH_BYTES):
                if len(piece) > room or len(pieces) > 10_000:
                    yield pieces, data
                    pieces, data, room = [], [], _BATCH_BYTES
                if not piece and size > at:
                    break  # it is shorter by now
                pieces.append((digest, at, len(piece), size))
                data.append(piece)
                at += len(piece)
                room -= len(piece)
            if at < size:
                self._snapshot.renew(digest)
        yield pieces, data

    async def _offer(self, pieces: Sequence[_Piece], data: bytes, *, mirror: bool) -> Received:
        answer = await self._ask(pieces, [data], self._snapshot.manifest, mirror=mirror)
        self._renew(answer.damaged)
        return answer

    def _renew(self, damaged: Sequence[str]) -> None:
        for digest in damaged:
            self._snapshot.renew(digest)

    async def _ask(self, pieces: Sequence[_Piece], data: Sequence[bytes], manifest: bytes, *, mirror: bool) -> Received:
        request = {
            "folder": self._folder,
            "store": self._store,
            "sender": self._sender,
            "pieces": pieces,
            "manifest_bytes": len(manifest),
            "mirror": mirror,
            "expendable": self._expendable,
            "keep_seconds": KEEP_SECONDS,
            "keep_bytes": KEEP_BYTES,
        }
        self._sent += sum(map(len, data))
        answer, _ = await ask(self._shell, self._python, "receive", request, b"".join((*data, manifest)))
        try:
            received = load_record(Received, answer)
            if manifest:
                require_path(received.folder)
            for number in (received.free_bytes, received.written):
                require_within(number, 0, _MOST_BYTES)
        except ValueError as error:
            raise malformed(self._shell.host, error) from None
        return received

    def _require_room(self, answer: Received) -> None:
        """Raise EngineError if it cannot fit, before anything is sent: once as it travels, once laid out."""
        sizes = self._snapshot.sizes
        needed, free = 2 * sum(sizes.get(each, 0) for each in answer.missing), answer.free_bytes
        if needed > free:
            raise EngineError(
                f"{self._shell.host} has no room for {self._what}: it takes {bulk(needed)} below"
                f" {clean_text(answer.folder)}, where {bulk(free)} are free",
                hint="make room there, or name another folder of the hosts: `ssh: {folder: PATH}`",
            )


_Piece = tuple[str, int, int, int]
_Batch = tuple[list[_Piece], list[bytes]]


def _refusal(host: str, answer: Mapping[str, Any]) -> EngineError:
    path, words = clean_text(str(answer.get("path"))), clean_text(str(answer["error"]))
    if answer.get("errno") in (errno.ENOSPC, errno.EDQUOT):
        return EngineError(
            f"the disk of {host} is full: {path} cannot be written",
            hint="make room there, or name another folder of the hosts: `ssh: {folder: PATH}`",
        )
    return EngineError(f"{path} cannot be written on {host}: {words}")
