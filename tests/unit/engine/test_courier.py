"""What comes faster than the supervisor's loop deals with it waits where it comes from."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from clockwork import TurnedLoop
from drumline.engine.courier import Courier


async def nothing() -> None:
    """Close nothing."""


def test_a_delivery_waits_until_the_one_before_it_was_dealt_with() -> None:
    loop = TurnedLoop()
    courier = Courier(loop, nothing, name="test")
    dealt: list[int] = []
    begun: list[int] = []
    has_begun = threading.Event()

    async def deliver() -> None:
        for number in range(3):
            begun.append(number)
            has_begun.set()
            await courier.deliver(dealt.append, number)

    try:
        sent = courier.send(deliver())
        assert has_begun.wait(30)
        assert courier.ask(asyncio.sleep(0, "idle"), 30) == "idle"  # that thread has nothing else to do
        assert (begun, dealt) == ([0], [])
        while len(dealt) < 3:
            loop.turn()
        sent.result(30)
        assert dealt == [0, 1, 2]
    finally:
        courier.close()
        loop.close()


def test_streams_that_are_open_when_it_is_closed_are_closed_once(caplog: pytest.LogCaptureFixture) -> None:
    """A task that is cancelled between two items leaves a generator open, and that one its stream."""
    loop = TurnedLoop()
    courier = Courier(loop, nothing, name="test")
    closed: list[str] = []
    has_begun = threading.Event()

    @asynccontextmanager
    async def stream() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            closed.append("stream")

    async def watch() -> AsyncIterator[int]:
        async with stream() as number:
            while True:
                yield number

    async def follow() -> None:
        async for _ in watch():
            has_begun.set()
            await asyncio.Event().wait()

    courier.send(follow())
    assert has_begun.wait(30)
    courier.close()
    loop.close()
    assert closed == ["stream"]
    assert not caplog.records
