"""How long to wait before somebody is asked again who does not answer."""

from __future__ import annotations

import asyncio
import random

from drumline.engine.kubernetes.refusal import AwayError
from drumline.errors import EngineError

_FIRST_SECONDS, _LONGEST_SECONDS = 0.25, 8.0
_LONGEST_ASKED_SECONDS = 60.0


class Pause:
    """Waits longer each time, at random so that not everybody comes at once, until patience is out."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self.rest()

    def rest(self) -> None:
        """All is well again."""
        self._since: float | None = None
        self._next = _FIRST_SECONDS

    async def take(self, trouble: EngineError) -> None:
        """Wait, as long as was asked for; raise the trouble when it has lasted too long."""
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        if not isinstance(trouble, AwayError) or now - self._since >= self._patience_seconds:
            raise trouble
        asked = trouble.after_seconds
        pause = self._next * random.uniform(0.5, 1.0) if asked is None else min(asked, _LONGEST_ASKED_SECONDS)
        await asyncio.sleep(min(pause, self._since + self._patience_seconds - now))
        self._next = min(2 * self._next, _LONGEST_SECONDS)
