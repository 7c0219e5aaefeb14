"""Detect that a run has written files that TensorBoard can show; checked at long intervals until one is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from drumline.engine.protocol import ReportEvent
from drumline.run.event import SummariesFound
from drumline.store.tfevents import has_summaries

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

# Summaries are written after the first steps or the first epoch: the longer there were none, the longer the next check
# waits. A large folder is checked less often.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 30.0
_PAUSES_PER_AGE = 20
_PAUSES_PER_CHECK = 200


class SummaryDetector:
    """Checks the folder that `folder()` returns at intervals, until it has summaries, or `folder()` returns None."""

    def __init__(self, loop: AbstractEventLoop, folder: Callable[[], str | None], report: ReportEvent) -> None:
        self._loop = loop
        self._folder = folder
        self._report = report
        self._began = loop.time()

    def check(self) -> None:
        """Check the folder; if it has no summaries, schedule the next check."""
        folder = self._folder()
        if folder is None:
            return
        before = self._loop.time()
        if has_summaries(folder):
            self._report(SummariesFound())
            return
        now = self._loop.time()
        pause = min(max(_PAUSE_SECONDS, (now - self._began) / _PAUSES_PER_AGE), _LONGEST_PAUSE_SECONDS)
        self._loop.call_later(max(pause, _PAUSES_PER_CHECK * (now - before)), self.check)
