"""How long to wait before a request is made again."""

from __future__ import annotations

import asyncio
import random
from math import inf

from drumline.engine.kubernetes.api_errors import UnreachableError
from drumline.errors import EngineError

_LONGEST_ASKED_SECONDS = 60.0


class Backoff:
    """Waits longer each time, at random so that not all requests come at once, until patience is out."""

    def __init__(self, patience_seconds: float = inf, *, first: float = 0.25, longest: float = 8.0) -> None:
        self._patience_seconds = patience_seconds
        self._first, self._longest = first, longest
        self.reset()

    def reset(self) -> None:
        """Begin anew: the last request was answered."""
        self._since: float | None = None
        self._next = self._first

    def next_seconds(self) -> float:
        """Return how long to wait this time."""
        seconds = self._next * random.uniform(0.5, 1.0)
        self._next = min(2 * self._next, self._longest)
        return seconds

    async def wait(self, trouble: EngineError) -> None:
        """Wait, as long as was asked for; raise the trouble when it has lasted too long."""
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        if not isinstance(trouble, UnreachableError) or now - self._since >= self._patience_seconds:
            raise trouble
        pause, asked = self.next_seconds(), trouble.after_seconds
        pause = pause if asked is None else min(asked, _LONGEST_ASKED_SECONDS)
        await asyncio.sleep(min(pause, self._since + self._patience_seconds - now))
