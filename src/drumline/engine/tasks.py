"""Background tasks of the supervisor's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any

Work = Coroutine[Any, Any, None]
_CLOSE_SECONDS = 5.0


class Tasks:
    """Starts tasks and cancels them together; an unexpected error of one is passed to the loop's exception handler."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_open = True

    def begin(self, work: Work) -> asyncio.Task[None]:
        """Run a coroutine as a task, and return the task."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()

    async def close(self) -> None:
        """Cancel all tasks; return when they have ended and the asynchronous generators in them are closed."""
        self.is_open = False
        ours = self._tasks - {asyncio.current_task()}
        others = asyncio.all_tasks() - ours
        for task in ours:
            task.cancel()
        await _wait(ours)
        for _ in range(2):
            await asyncio.sleep(0)  # the loop closes an open generator in a task of its own, which starts now
        await _wait(asyncio.all_tasks() - others)


async def _wait(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait until these tasks have ended, for `_CLOSE_SECONDS` at most, since one may hang."""
    if tasks:
        await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
