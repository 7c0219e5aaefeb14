"""Frames between this machine and an agent: a message as a line of JSON, followed by bytes.

An agent parses requests with `FrameParser`. This machine reads the frames of an agent with `read_frame`, which does not
trust them: sizes, numbers and nesting are limited before any data is kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Protocol

from drumline.engine.untrusted import MOST_VALUES, load_json
from drumline.record import Record

MAGIC = b"drumline-agent "  # the beginning of an agent's first line; a shell may print a greeting before it
SIZE = "bytes"  # the key with the number of bytes that follow the line
MESSAGE_BYTES = 8 << 20  # the limit for a message that an agent sends
DATA_BYTES = 1 << 20  # the limit for the bytes after it
_LONG_BYTES = 1 << 18  # a longer message is parsed in a thread


class Frame(Record):
    """A message, and the bytes that follow it."""

    message: dict[str, Any]
    data: bytes = b""

    def encode(self) -> bytes:
        """Return the frame as bytes."""
        message = {**self.message, SIZE: len(self.data)} if self.data else self.message
        return json.dumps(message).encode() + b"\n" + self.data


class Limits(Record):
    """Limits of an agent's answer: its size, its number of values, and whether it contains names of files.

    With `files`, numbers may be negative, and strings may be names that are not UTF-8, as `os.fsdecode` returns them.
    """

    message_bytes: int = MESSAGE_BYTES
    data_bytes: int = DATA_BYTES
    values: int = MOST_VALUES
    files: bool = False


USUAL = Limits()


class FrameParser:
    """Assembles the frames of requests in an agent; it trusts them, so it must not read the frames of an agent."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._message: dict[str, Any] | None = None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete now."""
        self._received += data
        while True:
            if self._message is None:
                end = self._received.find(b"\n")
                if end < 0:
                    return
                self._message = json.loads(self._received[:end])
                del self._received[: end + 1]
            size = self._message.get(SIZE, 0)
            if len(self._received) < size:
                return
            frame = Frame(self._message, bytes(self._received[:size]))
            del self._received[:size]
            self._message = None
            yield frame


class Stream(Protocol):
    """The output of an agent, read within limits."""

    async def readline(self, most_bytes: int) -> bytes:
        """Return the next line with its newline; without one at the end of the stream."""
        ...

    async def readexactly(self, size: int) -> bytes:
        """Return exactly this number of bytes; raise EngineError if the stream ends earlier."""
        ...


async def read_frame(stream: Stream, limits: Limits = USUAL) -> Frame | None:
    """Return the next frame of an agent, None at the end of the stream; raise ValueError for an invalid frame."""
    line = await stream.readline(limits.message_bytes)
    if not line.endswith(b"\n"):
        return None  # an incomplete line: the connection broke
    if len(line) > _LONG_BYTES:  # so that other tasks run meanwhile
        message = await asyncio.to_thread(_parse, line, limits)
    else:
        message = _parse(line, limits)
    size = message.get(SIZE, 0)
    if type(size) is not int or not 0 <= size <= limits.data_bytes:
        raise ValueError(f"a message with {str(size)[:50]} bytes")
    return Frame(message, await stream.readexactly(size) if size else b"")


def _parse(line: bytes, limits: Limits) -> dict[str, Any]:
    if not line.isascii():  # a character that is not ASCII would make the decoded text up to four times as large
        raise ValueError("text that is not ASCII")
    message = load_json(line, most_values=limits.values, signed=limits.files, names=limits.files)
    if not isinstance(message, dict) or not isinstance(message.get("do"), str):
        raise ValueError("a frame that is no JSON object with a `do`")
    if type(message.get("id", 0)) is not int:
        raise ValueError("a frame with an `id` that is not a whole number")
    return message
