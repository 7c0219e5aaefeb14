"""Events are read in their order, all queued ones at once."""

from __future__ import annotations

import asyncio

from drumline.engine.events import EventQueue
from drumline.run.event import EngineWarned, Event

FIRST, SECOND, THIRD = (EngineWarned(0, text) for text in ("first", "second", "third"))


def test_queued_events_are_read_before_other_tasks_run() -> None:
    async def read() -> list[Event | str]:
        events, read = EventQueue(), list[Event | str]()
        events.put(FIRST)
        events.put(SECOND)
        events.close()
        asyncio.get_running_loop().call_soon(read.append, "something else")
        async for event in events:
            read.append(event)
        await asyncio.sleep(0)
        return read

    assert asyncio.run(read()) == [FIRST, SECOND, "something else"]


def test_joining_waits_until_the_reader_has_handled_all_events() -> None:
    async def join() -> list[Event]:
        events, dealt = EventQueue(), list[Event]()

        async def deal() -> None:
            async for event in events:
                await asyncio.sleep(0)
                dealt.append(event)

        reading = asyncio.create_task(deal())
        for event in (FIRST, SECOND, THIRD):
            events.put(event)
        await events.join()
        reading.cancel()
        return dealt

    assert asyncio.run(join()) == [FIRST, SECOND, THIRD]


def test_joining_returns_at_once_without_events() -> None:
    asyncio.run(EventQueue().join())


def test_an_event_that_is_read_after_the_reader_stopped_waiting_is_joined_when_it_asks_for_the_next_one() -> None:
    async def read() -> tuple[Event, list[bool]]:
        events = EventQueue()
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        events.put(FIRST)
        event = await anext(events)
        joining = asyncio.create_task(events.join())
        await asyncio.sleep(0)
        joined = [joining.done()]
        waiting = asyncio.ensure_future(anext(events))
        await joining
        waiting.cancel()
        return event, [*joined, joining.done()]

    assert asyncio.run(read()) == (FIRST, [False, True])
