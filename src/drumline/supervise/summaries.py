"""Detect that a run has written files that TensorBoard can show; checked rarely, and only until there are any."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from drumline.engine.protocol import ReportEvent
from drumline.run.event import SummariesFound
from drumline.store.tfevents import has_summaries

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

# Summaries are written after the first steps or the first epoch: the longer there were none, the longer the next
# check can wait. A large folder is checked less often.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 30.0
_PAUSES_PER_AGE = 20
_PAUSES_PER_CHECK = 200


class SummaryDetector:
    """Checks the folder that `folder` returns periodically, until there are summaries, or None is returned."""

    def __init__(self, loop: AbstractEventLoop, folder: Callable[[], str | None], tell: ReportEvent) -> None:
        self._loop = loop
        self._folder = folder
        self._tell = tell
        self._began = loop.time()

    def check(self) -> None:
        """Check once, and again later if there is nothing."""
        folder = self._folder()
        if folder is None:
            return
        before = self._loop.time()
        if has_summaries(folder):
            self._tell(SummariesFound())
            return
        now = self._loop.time()
        pause = min(max(_PAUSE_SECONDS, (now - self._began) / _PAUSES_PER_AGE), _LONGEST_PAUSE_SECONDS)
        self._loop.call_later(max(pause, _PAUSES_PER_CHECK * (now - before)), self.check)
