"""Perform actions on an engine one after the other, in the order in which they were ordered.

Only a stop is performed at once: it cancels a start or a preparation that is in progress. The cancelled action is
performed again after the stop, without the stopped replicas; a repeated start has no effect on running replicas.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from drumline.run.action import Prepare, Start, Stop
from drumline.run.incarnation import Incarnation

Ordered = Prepare | Start | Stop


class Performer:
    """Holds the actions that are ordered and not performed yet; owns the task of the current action."""

    def __init__(self, perform: Callable[[Ordered], Awaitable[None]]) -> None:
        self._perform = perform
        self._ordered: deque[Ordered] = deque()
        self._stopped: set[Incarnation] = set()
        self._has_order = asyncio.Event()  # an action was ordered

    def order(self, action: Ordered) -> None:
        """Order an action; it is performed after all actions that were ordered before, a stop at once."""
        self._ordered.append(action)
        if isinstance(action, Stop):
            self._stopped.update(action.incarnations)
        self._has_order.set()

    def is_stopped(self, incarnation: Incarnation) -> bool:
        """Return whether a stop was ordered for this incarnation; it must not be started after that."""
        return incarnation in self._stopped

    async def run(self) -> None:
        """Perform the ordered actions until this task is cancelled; raise the error of an action that fails."""
        while True:
            while not self._ordered:
                self._has_order.clear()
                await self._has_order.wait()
            action = self._ordered.popleft()
            if not await self._finishes(action):
                self._ordered.insert(self._last_stop() + 1, action)

    async def finish(self) -> None:
        """Perform the remaining stops; called when the run is over."""
        for action in self._ordered:
            if isinstance(action, Stop):
                await self._perform(action)

    async def _finishes(self, action: Ordered) -> bool:
        """Perform an action; return False if it was cancelled because a stop was ordered."""
        performing = asyncio.ensure_future(self._perform(action))
        try:
            await asyncio.sleep(0)  # an action that does not wait is complete after this
            while not performing.done():
                if not isinstance(action, Stop) and self._last_stop() >= 0:
                    return False
                self._has_order.clear()
                ordered = asyncio.ensure_future(self._has_order.wait())
                try:
                    await asyncio.wait({performing, ordered}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    ordered.cancel()
            await performing
        finally:
            if not performing.done():
                performing.cancel()
                await asyncio.wait({performing})
        return True

    def _last_stop(self) -> int:
        """Return the index of the last stop among the ordered actions; -1 if there is none."""
        return max((place for place, each in enumerate(self._ordered) if isinstance(each, Stop)), default=-1)
