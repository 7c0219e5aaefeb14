"""The scout: whether a run has written something that TensorBoard can show, asked seldom, and only until it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from drumline.engine.protocol import Tell
from drumline.run.event import SummariesFound
from drumline.store.tfevents import has_summaries

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

# Who writes summaries does so after the first steps or the first epoch: the longer there were none, the longer the
# next look can wait. A folder with much in it is looked at less often.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 30.0
_PAUSES_PER_AGE = 20
_PAUSES_PER_LOOK = 200


class Scout:
    """Looks now and then into the folder that `asks` names, until it tells of summaries, or None is named."""

    def __init__(self, loop: AbstractEventLoop, asks: Callable[[], str | None], tell: Tell) -> None:
        self._loop = loop
        self._asks = asks
        self._tell = tell
        self._began = loop.time()

    def look(self) -> None:
        """Look once, and again later if there was nothing."""
        folder = self._asks()
        if folder is None:
            return
        before = self._loop.time()
        if has_summaries(folder):
            self._tell(SummariesFound())
            return
        now = self._loop.time()
        pause = min(max(_PAUSE_SECONDS, (now - self._began) / _PAUSES_PER_AGE), _LONGEST_PAUSE_SECONDS)
        self._loop.call_later(max(pause, _PAUSES_PER_LOOK * (now - before)), self.look)
