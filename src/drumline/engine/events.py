"""The events of a session, in their order, for one reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from drumline.run.event import Event


class EventQueue(AsyncIterator[Event]):
    """A queue of events; a reader gets all queued events before other tasks run."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._is_read = False  # the reader has received an event and not asked for the next one

    def put(self, event: Event) -> None:
        """Add an event to the end of the queue."""
        self._events.put_nowait(event)

    def close(self) -> None:
        """End the iteration after the queued events."""
        self._events.put_nowait(None)

    async def join(self) -> None:
        """Return when the reader has handled all events and waits for the next one."""
        await self._events.join()

    async def __anext__(self) -> Event:
        """Return the next event."""
        if self._is_read:
            self._events.task_done()
        self._is_read = False
        event = await self._events.get()
        self._is_read = True
        if event is None:
            raise StopAsyncIteration
        return event
