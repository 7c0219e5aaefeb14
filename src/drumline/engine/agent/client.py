"""Send requests to an agent on another machine, one at a time; its answers are not trusted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol, Self, TypeVar

from drumline.engine.agent.answers import read_answer
from drumline.engine.agent.errors import MalformedError, UnreachableError, error_from_answer
from drumline.engine.agent.frames import USUAL, Frame, Limits, Stream, read_frame

T = TypeVar("T")

ANSWER_SECONDS = 30.0


class Channel(Stream, Protocol):
    """A command on another machine, with its streams."""

    async def write(self, data: bytes) -> None:
        """Write to the command's stdin; wait while it does not read."""
        ...

    async def stderr_tail(self) -> str:
        """Return the end of the command's stderr."""
        ...

    def close(self) -> None:
        """Close its streams."""
        ...


class Agent:
    """An agent that answers one request at a time; `folder_hint` is the hint for a full disk."""

    def __init__(self, channel: Channel, host: str, folder_hint: str = "") -> None:
        self.channel = channel
        self.host = host
        self.folder_hint = folder_hint

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the agent ends with it."""
        self.channel.close()

    async def ask(self, message: Mapping[str, object], kind: type[T], *, seconds: float = ANSWER_SECONDS) -> T:
        """Send a request and return its answer as a record of this kind.

        Raise the agent's error, UnreachableError without an answer within `seconds`, or MalformedError.
        """
        answer = await self.exchange(message, seconds=seconds)
        try:
            return read_answer(kind, answer.message)
        except ValueError as error:
            raise MalformedError(self.host, error) from None

    async def exchange(
        self,
        message: Mapping[str, object],
        data: bytes = b"",
        *,
        seconds: float = ANSWER_SECONDS,
        limits: Limits = USUAL,
    ) -> Frame:
        """Send a request, with bytes, and return the frame of its answer; only these limits of it are checked."""
        try:
            async with asyncio.timeout(seconds):
                await self.channel.write(Frame({**message, "id": 0}, data).encode())
                answer = await read_frame(self.channel, limits)
        except TimeoutError:
            raise UnreachableError(f"{self.host} has not answered within {seconds:g} s") from None
        except ValueError as error:
            raise MalformedError(self.host, error) from None
        if answer is None:
            raise UnreachableError(f"the connection to {self.host} broke", hint=f"try `ssh {self.host} true`")
        if answer.message["do"] != "answer":
            raise MalformedError(self.host, "no answer")
        if "error" in answer.message:
            raise error_from_answer(self.host, answer.message, folder_hint=self.folder_hint)
        return answer
