"""The delay before a request is retried."""

from __future__ import annotations

import asyncio
import random
from math import inf

from drumline.engine.kubernetes.api_errors import UnreachableError
from drumline.errors import EngineError

_LONGEST_ASKED_SECONDS = 60.0


class Backoff:
    """Waits longer each time, with jitter, until the timeout is over."""

    def __init__(self, timeout_seconds: float = inf, *, first: float = 0.25, longest: float = 8.0) -> None:
        self._timeout_seconds = timeout_seconds
        self._first, self._longest = first, longest
        self.reset()

    def reset(self) -> None:
        """Begin again with the first delay, since the last request was answered."""
        self._since: float | None = None
        self._next = self._first

    def next_seconds(self) -> float:
        """Return the next delay."""
        seconds = self._next * random.uniform(0.5, 1.0)
        self._next = min(2 * self._next, self._longest)
        return seconds

    async def wait(self, error: EngineError) -> None:
        """Wait before a retry, for the time that the server requests if any; raise the error if it is final.

        Also raise it if the timeout is over.
        """
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        if not isinstance(error, UnreachableError) or now - self._since >= self._timeout_seconds:
            raise error
        pause, asked = self.next_seconds(), error.after_seconds
        pause = pause if asked is None else min(asked, _LONGEST_ASKED_SECONDS)
        await asyncio.sleep(min(pause, self._since + self._timeout_seconds - now))
