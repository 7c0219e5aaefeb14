"""The supervisor's loop for tests, advanced by the test: in real time, or in simulated time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from drumline.engine.loop import BootClockLoop

T = TypeVar("T")
_BEAT_SECONDS = 0.002


_loops: list[SteppedLoop] = []


def end_loops() -> None:
    """Close every loop that a test has made."""
    while _loops:
        _loops.pop().end()


class SteppedLoop(BootClockLoop):
    """An asyncio loop that runs only while a test calls `turn` or `wait`."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        super().__init__(selector)
        _loops.append(self)

    def turn(self) -> None:
        """Run everything that is due."""
        self.run_until_complete(asyncio.sleep(_BEAT_SECONDS))

    def turn_once(self) -> None:
        """Run each callback that is due now, once."""
        self.call_soon(self.stop)
        self.run_forever()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run an awaitable to its end; return its result."""
        return self.run_until_complete(work)

    def end(self) -> None:
        """Cancel all tasks and close the loop, as the end of the process would."""
        if self.is_closed():
            return
        while tasks := asyncio.all_tasks(self):
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.wait(tasks))
        for transport in [*self._transports.values()]:  # type: ignore[attr-defined]
            transport.abort()
        self.run_until_complete(asyncio.sleep(0))
        self.close()


class SimulatedTimeLoop(SteppedLoop):
    """A loop with simulated time, which jumps to the next timer when all tasks wait; slow machines do not matter."""

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        selector = selectors.DefaultSelector()
        super().__init__(selector)
        look = selector.select

        def leap(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            assert timeout is not None or len(selector.get_map()) > 1, "nothing more happens"
            found = look(timeout if timeout is None else 0)
            self._now += 0 if found else max(0.0, timeout or 0)
            return found

        selector.select = leap  # type: ignore[method-assign]

    def time(self) -> float:
        """Return the simulated time."""
        return self._now

    @property
    def timers(self) -> int:
        """Return the number of pending timers."""
        return sum(not each.cancelled() for each in self._scheduled)  # type: ignore[attr-defined]

    def pass_time(self, seconds: float) -> None:
        """Advance the time by this many seconds and run everything that is due by then."""
        until = self._now + seconds
        self.run_until_complete(asyncio.sleep(seconds))
        self._now = until
        for _ in range(10):
            self.run_until_complete(asyncio.sleep(0))
