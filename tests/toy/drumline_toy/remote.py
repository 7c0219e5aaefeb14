"""The toy's access to a supervisor that runs elsewhere: a socket in the folder of a server."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from drumline.engine.abilities import MOST_ANSWER_BYTES
from drumline.errors import EngineError
from drumline.runtime.unix import short_name

SOCKET = "socket"
LENGTH = struct.Struct("!Q")  # of what follows


class ToyRemote:
    """One run on a server."""

    def __init__(self, folder: Path, run: str) -> None:
        self._folder, self._run = folder, run

    async def start(self, order: bytes) -> bytes:
        """Let the server start a supervisor."""
        return await self._send("start", order)

    async def exchange(self, request: bytes) -> bytes:
        """Send a request; return the answer."""
        return await self._send("answer", request)

    async def forget(self) -> None:
        """Let the server remove the run's folder."""
        await self._send("forget", b"")

    async def _send(self, what: str, message: bytes) -> bytes:
        away = f"the server in {self._folder} does not answer"
        try:
            with short_name(self._folder / SOCKET) as name:
                reader, writer = await asyncio.open_unix_connection(name)
        except OSError as error:
            raise EngineError(f"{away}: {error.strerror}") from None
        try:
            writer.write(f"{what} {self._run}\n".encode() + LENGTH.pack(len(message)) + message)
            (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            if length > MOST_ANSWER_BYTES:
                raise EngineError(f"the server in {self._folder} wants to send {length} bytes")
            return await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            raise EngineError(away) from None
        finally:
            writer.close()
