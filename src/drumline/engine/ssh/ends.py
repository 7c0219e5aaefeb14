"""Ends in the order in which they came, whichever host says so first."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from drumline.engine.local.life import Life
from drumline.run.event import ReplicaExited
from drumline.run.usage import Usage

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_PATIENCE_SECONDS = 5.0  # with a host that does not answer
_LONGEST_SECONDS = 60.0  # with one that is reached and has much to do

End = tuple[ReplicaExited, Usage | None]


class Ends:
    """Holds ends back while a host has not done yet what it was told: it may know of an earlier one."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        tell: Callable[[ReplicaExited, Usage | None], None],
        is_reached: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._loop = loop
        self._tell = tell
        self._is_reached = is_reached
        self._numbers = count()
        self._awaited: dict[str, int] = {}  # hosts, with the number of what they were told last
        self._held: dict[Life, End] = {}

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
        life = Life(event.replica, event.attempt, event.incarnation)
        if life in self._held:  # it ends once, however often a host says so
            return
        end = self._held[life] = event, usage
        self._go_on()
        if self._held:  # no longer than this, however often a host is told something anew
            self._loop.call_later(_LONGEST_SECONDS, lambda: self._release(life, end))

    def done(self, host: str, number: int) -> None:
        """A host has done this that it was told, or is not waited for any more; it may have been told more since."""
        if self._awaited.get(host) == number:
            del self._awaited[host]
            self._go_on()

    def _go_on(self) -> None:
        if not self._awaited:
            self._tell_held()

    def _release(self, life: Life, end: End) -> None:
        """Tell what is held if this end is still among it."""
        if self._held.get(life) is end:
            self._tell_held()

    def _tell_held(self) -> None:
        held, self._held = sorted(self._held.values(), key=lambda each: each[0].at_seconds), {}
        for event, usage in held:
            self._tell(event, usage)
