"""Ends in the order in which they came, whichever host says so first."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from drumline.engine.protocol import Loop
from drumline.run.event import ReplicaExited
from drumline.run.usage import Usage

_PATIENCE_SECONDS = 5.0  # with a host that does not answer
_LONGEST_SECONDS = 60.0  # with one that is reached and has much to do

End = tuple[ReplicaExited, Usage | None]


class Ends:
    """Holds ends back while a host has not done yet what it was told: it may know of an earlier one."""

    def __init__(
        self,
        loop: Loop,
        tell: Callable[[ReplicaExited, Usage | None], None],
        is_reached: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._loop = loop
        self._tell = tell
        self._is_reached = is_reached
        self._numbers = count()
        self._awaited: dict[str, int] = {}  # hosts, with the number of what they were told last
        self._held: list[End] = []

    def expect(self, host: str) -> int:
        """A host is told something; returns its number."""
        number = self._awaited[host] = next(self._numbers)
        self._wait(host, number, _LONGEST_SECONDS)
        return number

    def _wait(self, host: str, number: int, seconds: float) -> None:
        def look() -> None:
            if self._awaited.get(host) == number and seconds > _PATIENCE_SECONDS and self._is_reached(host):
                self._wait(host, number, seconds - _PATIENCE_SECONDS)
            else:
                self.done(host, number)

        self._loop.call_later(_PATIENCE_SECONDS, look)

    def add(self, event: ReplicaExited, usage: Usage | None) -> None:
        """A host says how somebody ended, by the clock of this machine."""
        self._held.append((event, usage))
        self._go_on()

    def done(self, host: str, number: int) -> None:
        """A host has done this that it was told, or is not waited for any more; it may have been told more since."""
        if self._awaited.get(host) == number:
            del self._awaited[host]
            self._go_on()

    def _go_on(self) -> None:
        if self._awaited:
            return
        held, self._held = sorted(self._held, key=lambda each: each[0].at_seconds), []
        for event, usage in held:
            self._tell(event, usage)
