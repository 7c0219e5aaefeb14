"""A loop without a world: nothing is waited for, and the next time that anybody asked for is now."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Clockwork:
    """Times in their order, as fast as they can be called; descriptors it has none."""

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self._times: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def on_readable(self, descriptor: int, call: Callable[[], object]) -> None:
        """Nobody who plays has descriptors."""
        raise AssertionError(f"descriptor {descriptor}")

    def forget(self, descriptor: int) -> None:
        """Nobody who plays has descriptors."""
        raise AssertionError(f"descriptor {descriptor}")

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call this once, after so long."""
        heapq.heappush(self._times, (self._now + seconds, next(self._order), call))

    def now(self) -> float:
        """The time of whatever was called last."""
        return self._now

    def turn(self) -> bool:
        """Let the next time come; False if nobody asked for one."""
        if not self._times:
            return False
        self._now, _, call = heapq.heappop(self._times)
        call()
        return True

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass, and everything that is due happen."""
        until = self._now + seconds
        while self._times and self._times[0][0] <= until:
            self.turn()
        self._now = until
