"""A loop of descriptors and times, no more: a supervisor waits nearly all of its life, and should weigh little."""

from __future__ import annotations

import heapq
import itertools
import selectors
from collections.abc import Callable

from drumline.runtime import keeper


class EventLoop:
    """Calls back when a descriptor can be read or a time has come."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._times: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def on_readable(self, descriptor: int, call: Callable[[], object]) -> None:
        """Call this whenever the descriptor can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ, call)

    def forget(self, descriptor: int) -> None:
        """Look at this descriptor no more."""
        self._selector.unregister(descriptor)

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call this once, after so long; those for the same moment in the order they were asked for."""
        heapq.heappush(self._times, (self.now() + seconds, next(self._order), call))

    def now(self) -> float:
        """Seconds of the clock that every keeper stamps with."""
        return keeper.now()

    def turn(self) -> None:
        """Wait for whatever comes next, and call everybody whom it concerns."""
        wait = max(0.0, self._times[0][0] - self.now()) if self._times else None
        for key, _ in self._selector.select(wait):
            # Not forgotten by one of those called before it, nor somebody else's by now under the same number.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        moment = self.now()
        while self._times and self._times[0][0] <= moment:
            heapq.heappop(self._times)[2]()

    def close(self) -> None:
        """Give the selector back."""
        self._selector.close()
