"""Output of a command on a host is read within limits of memory and time."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator
from typing import Any, cast

import pytest

from drumline.engine.agent.errors import MalformedError, UnreachableError
from drumline.engine.ssh.shell import SshChannel

MIB = 1 << 20


class Stream:
    """A stream of pieces that then ends or stays silent."""

    def __init__(self, pieces: Iterator[bytes], *, ends: bool = True) -> None:
        self._pieces = pieces
        self._ends = ends

    async def read(self, most: int) -> bytes:
        await asyncio.sleep(0)
        if piece := next(self._pieces, b""):
            assert len(piece) <= most
            return piece
        if not self._ends:
            await asyncio.Event().wait()
        return b""


class Process:
    """A process with the interface of asyncssh."""

    def __init__(self, out: Stream, err: Stream) -> None:
        self.stdout, self.stderr, self.stdin = out, err, self
        self.returncode: int | None = 0
        self.is_closed = False

    def write(self, data: bytes) -> None:
        del data

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    async def wait_closed(self) -> None:
        pass


def pieces(number: int, piece: bytes = b"x" * (1 << 16)) -> Iterator[bytes]:
    return (piece for _ in range(number))


def channel(out: Iterator[bytes], *err: bytes) -> SshChannel:
    return SshChannel(cast("Any", Process(Stream(out), Stream(iter(err)))), "h1")


def test_lines_and_bytes_are_read_as_they_were_written() -> None:
    async def go() -> None:
        received = channel(iter((b"on", b"e\ntw", b"o\nabc", b"def", b"rest")))
        assert await received.readline(100) == b"one\n"
        assert await received.readline(100) == b"two\n"
        assert await received.readexactly(4) == b"abcd"
        assert await received.readline(100) == b"efrest"
        assert await received.readline(100) == b""

    asyncio.run(go())


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    tracemalloc.start()
    with pytest.raises(MalformedError, match=r"h1 .* a line longer than"):
        asyncio.run(channel(pieces(10_000)).readline(MIB))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * MIB


def test_a_stream_that_ends_early_is_a_broken_connection() -> None:
    with pytest.raises(UnreachableError, match="the connection to h1 broke"):
        asyncio.run(channel(iter((b"abc",))).readexactly(4))


def test_only_the_end_of_stderr_is_kept() -> None:
    tail = asyncio.run(channel(iter(()), *pieces(100), b"\nlast words\n").stderr_tail())
    assert tail.endswith("last words")
    assert len(tail) < 1 << 15
