"""Actions are performed in order, except that a stop cancels an action that waits."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from drumline.plan.types import ReplicaId
from drumline.run.action import Prepare, Start, Stop
from drumline.run.incarnation import Incarnation
from drumline.supervise.perform import Ordered, Performer

WORKER = ReplicaId("worker", 0)
FIRST, SECOND = Incarnation(WORKER, 0), Incarnation(ReplicaId("worker", 1), 0)


class Slow:
    """An engine with starts that wait for `may_start`; `done` has the performed and the cancelled actions."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()
        self.may_start = asyncio.Event()
        self.done: list[Ordered | str] = []
        self.performer = Performer(self.perform)
        self.running = asyncio.ensure_future(self.performer.run())

    async def perform(self, action: Ordered) -> None:
        if not isinstance(action, Stop):
            self.waits.set()
            try:
                await self.may_start.wait()
            except asyncio.CancelledError:
                self.done.append("cancelled")
                raise
        self.done.append(action)

    async def until_done(self, number: int) -> None:
        while len(self.done) < number:
            await asyncio.sleep(0)

    async def close(self) -> None:
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running


def test_actions_that_do_not_wait_are_performed_in_order() -> None:
    async def go() -> None:
        slow = Slow()
        slow.may_start.set()
        orders: list[Ordered] = [
            Prepare(WORKER),
            Start(0),
            Stop((FIRST,), 0.0),
            Start(1),
            Stop((Incarnation(WORKER, 1),), 5.0),
        ]
        for order in orders:
            slow.performer.order(order)
        await slow.until_done(5)
        assert slow.done == orders
        await slow.close()

    asyncio.run(go())


def test_a_stop_cancels_a_start_that_waits_and_the_start_is_performed_again() -> None:
    async def go() -> None:
        slow = Slow()
        start, first, second = Start(0), Stop((FIRST,), 5.0), Stop((FIRST,), 0.0)
        slow.performer.order(start)
        await slow.waits.wait()
        slow.performer.order(first)
        slow.performer.order(second)
        await slow.until_done(3)
        assert slow.done == ["cancelled", first, second]
        assert slow.performer.is_stopped(FIRST)
        assert not slow.performer.is_stopped(SECOND)
        assert not slow.performer.is_stopped(Incarnation(WORKER, 0, 1))
        slow.may_start.set()
        await slow.until_done(4)
        assert slow.done[3] == start
        await slow.close()

    asyncio.run(go())


def test_only_stops_are_performed_after_the_end_of_a_run() -> None:
    async def go() -> None:
        slow = Slow()
        slow.performer.order(Start(0))
        await asyncio.sleep(0)
        await slow.close()
        stop = Stop((FIRST,), 0.0)
        slow.performer.order(Start(1))
        slow.performer.order(stop)
        await slow.performer.finish()
        assert slow.done[-1] == stop
        assert Start(1) not in slow.done

    asyncio.run(go())
