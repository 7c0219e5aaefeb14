"""What comes faster than the supervisor's loop deals with it waits where it comes from."""

from __future__ import annotations

import asyncio
import threading

import pytest

from drumline.engine.courier import Courier
from drumline.supervise.loop import EventLoop


async def nothing() -> None:
    """Close nothing."""


def test_a_delivery_waits_until_the_one_before_it_was_dealt_with() -> None:
    loop = EventLoop()
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


def test_a_delivery_that_fails_is_an_error_here_and_not_there() -> None:
    loop = EventLoop()
    courier = Courier(loop, nothing, name="test")

    def fail() -> None:
        raise ValueError("no")

    try:
        sent = courier.send(courier.deliver(fail))
        with pytest.raises(ValueError, match="no"):
            loop.turn()
        sent.result(30)
    finally:
        courier.close()
        loop.close()
