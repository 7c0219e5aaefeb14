"""Send a folder to a host: only contents that it does not have; the agent's verb `receive` writes the folder."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence

from drumline.engine.agent.answers import ReceiveAnswer, read_answer
from drumline.engine.agent.client import Agent
from drumline.engine.agent.errors import MalformedError
from drumline.engine.agent.frames import Limits
from drumline.engine.project.snapshot import Snapshot
from drumline.engine.untrusted import clean_text
from drumline.errors import EngineError
from drumline.record import Record
from drumline.words import decimal_size

KEEP_SECONDS = 14 * 86_400.0  # for which unused contents stay in the store of a host
KEEP_BYTES = 4 << 30  # the size of the store above which the oldest contents are removed
_BATCH_BYTES = 8 << 20  # in one request, so that neither side holds more
FILES_SECONDS = 3600.0  # for an answer: a large project takes long to write
FILES_LIMITS = Limits(message_bytes=32 << 20, data_bytes=16 << 20, values=1 << 21, files=True)
_TRIES = 5  # while files change on this machine, or contents are removed on the host


class SentFolder(Record):
    """The result of sending a folder."""

    folder: str  # its absolute path on the host
    files: int
    size_bytes: int
    sent_bytes: int  # that were transferred
    written: int  # entries that have changed


async def send_project(agent: Agent, snapshot: Snapshot, folder: str, *, store: str) -> SentFolder:
    """Send a project; files in its folder that were never sent stay, and contents are kept in the store.

    Raise EngineError if the host has too little disk space or does not answer; then the folder is unchanged.
    """
    return await _Transfer(agent, snapshot, folder, store, "the project").run(mirror=False)


async def send_folder(agent: Agent, snapshot: Snapshot, folder: str, *, exactly: bool = True) -> SentFolder:
    """Send a folder, and with `exactly` remove all other files from it on the host; no contents are kept in a store."""
    sending = _Transfer(agent, snapshot, folder, f"{folder}.incoming", "the output", expendable=True)
    return await sending.run(mirror=exactly)


class _Transfer:
    """One transfer of a folder to one host."""

    def __init__(
        self, agent: Agent, snapshot: Snapshot, folder: str, store: str, what: str, *, expendable: bool = False
    ) -> None:
        self._agent = agent
        self._snapshot = snapshot
        self._folder = folder
        self._store = store
        self._what = what
        self._expendable = expendable
        self._sender = secrets.token_hex(4)
        self._sent = 0

    async def run(self, *, mirror: bool) -> SentFolder:
        """Send the manifest of the folder and then the missing contents, until nothing is missing."""
        answer = await self._offer((), b"", mirror=mirror)
        for _ in range(_TRIES):
            if not answer.missing:
                break
            self._require_room(answer)
            answer = await self._send(answer.missing, mirror=mirror)
        else:
            raise EngineError(f"{self._what} changes faster than it can be sent to {self._agent.host}")
        found = self._snapshot
        return SentFolder(clean_text(answer.folder), found.files, found.size_bytes, self._sent, answer.written)

    async def _send(self, missing: Sequence[str], *, mirror: bool) -> ReceiveAnswer:
        """Send these contents, the last ones together with the manifest, so that the host can write the folder."""
        sizes = self._snapshot.sizes
        known = sorted((sizes[digest], digest) for digest in missing if digest in sizes)
        batches = self._batches({digest: size for size, digest in known})  # a broken connection loses at most the last
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
                    break  # the file has become shorter
                pieces.append((digest, at, len(piece), size))
                data.append(piece)
                at += len(piece)
                room -= len(piece)
            if at < size:
                self._snapshot.renew(digest)
        yield pieces, data

    async def _offer(self, pieces: Sequence[_Piece], data: bytes, *, mirror: bool) -> ReceiveAnswer:
        answer = await self._ask(pieces, [data], self._snapshot.manifest, mirror=mirror)
        self._renew(answer.damaged)
        return answer

    def _renew(self, damaged: Sequence[str]) -> None:
        for digest in damaged:
            self._snapshot.renew(digest)

    async def _ask(
        self, pieces: Sequence[_Piece], data: Sequence[bytes], manifest: bytes, *, mirror: bool
    ) -> ReceiveAnswer:
        request = {
            "do": "receive",
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
        answer = await self._agent.exchange(
            request, b"".join((*data, manifest)), seconds=FILES_SECONDS, limits=FILES_LIMITS
        )
        try:
            received = read_answer(ReceiveAnswer, answer.message)
            if manifest and not received.folder:
                raise ValueError("no folder")
        except ValueError as error:
            raise MalformedError(self._agent.host, error) from None
        return received

    def _require_room(self, answer: ReceiveAnswer) -> None:
        """Raise EngineError if the host has less free disk space than twice the missing bytes: for store and folder."""
        sizes = self._snapshot.sizes
        needed, free = 2 * sum(sizes.get(each, 0) for each in answer.missing), answer.free_bytes
        if needed > free:
            raise EngineError(
                f"{self._agent.host} has too little disk space for {self._what}: {decimal_size(needed)} are needed in"
                f" {clean_text(answer.folder)}, {decimal_size(free)} are free",
                hint=self._agent.folder_hint,
            )


_Piece = tuple[str, int, int, int]
_Batch = tuple[list[_Piece], list[bytes]]
