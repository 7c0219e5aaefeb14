"""What a command on a host says is read within limits, in memory and in time."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator
from typing import Any, cast

import pytest

from drumline.engine.ssh.refusal import AwayError, MalformedError
from drumline.engine.ssh.shell import Answer, Shell, Talk

MIB = 1 << 20


class Stream:
    """A stream of pieces, and then of silence, or of its end."""

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
    """A command as asyncssh knows it."""

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


class Connection:
    """A connection on which each command is this one."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def create_process(self, command: str, **how: object) -> Process:
        del command, how
        return self._process


def pieces(number: int, piece: bytes = b"x" * (1 << 16)) -> Iterator[bytes]:
    return (piece for _ in range(number))


def talk(out: Iterator[bytes], *err: bytes) -> Talk:
    return Talk(cast("Any", Process(Stream(out), Stream(iter(err)))), "h1")


def shell(process: Process) -> Shell:
    return Shell(cast("Any", Connection(process)), "h1")


def test_lines_and_bytes_come_as_they_were_said() -> None:
    async def go() -> None:
        spoken = talk(iter((b"on", b"e\ntw", b"o\nabc", b"def", b"rest")))
        assert await spoken.readline(100) == b"one\n"
        assert await spoken.readline(100) == b"two\n"
        assert await spoken.readexactly(4) == b"abcd"
        assert await spoken.readline(100) == b"efrest"
        assert await spoken.readline(100) == b""

    asyncio.run(go())


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    tracemalloc.start()
    with pytest.raises(MalformedError, match=r"h1 .* a line longer than"):
        asyncio.run(talk(pieces(10_000)).readline(MIB))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * MIB


def test_a_connection_that_ends_too_early_is_broken() -> None:
    with pytest.raises(AwayError, match="the connection to h1 broke"):
        asyncio.run(talk(iter((b"abc",))).readexactly(4))


def test_only_the_end_of_complaints_is_kept() -> None:
    said = asyncio.run(talk(iter(()), *pieces(100), b"\nlast words\n").said_last())
    assert said.endswith("last words")
    assert len(said) < 1 << 15


def test_a_command_that_says_too_much_is_refused_before_it_fills_the_memory() -> None:
    process = Process(Stream(pieces(10_000)), Stream(iter(())))
    tracemalloc.start()
    with pytest.raises(MalformedError, match=r"h1 .* more than"):
        asyncio.run(shell(process).run(["cat"], most_bytes=MIB))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * MIB
    assert process.is_closed


def test_a_command_that_says_a_byte_now_and_then_takes_no_longer_than_it_may() -> None:
    process = Process(Stream(iter((b"x",)), ends=False), Stream(iter(())))
    with pytest.raises(AwayError, match="has not answered within"):
        asyncio.run(shell(process).run(["cat"], seconds=0.05))
    assert process.is_closed


def test_what_a_command_says_is_returned() -> None:
    answer = asyncio.run(shell(Process(Stream(iter((b"a", b"b"))), Stream(iter((b"c\xff",))))).run(["cat"]))
    assert answer == Answer(0, b"ab", "c\ufffd")
