"""Ends in the order in which they came, whichever host says so first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from drumline.engine.protocol import Loop
from drumline.run.event import ReplicaExited
from drumline.run.usage import Usage

_PATIENCE_SECONDS = 5.0  # with a host that does not answer

End = tuple[ReplicaExited, Usage | None]


class Ends:
    """Holds ends back while a host has not done yet what it was told: it may know of an earlier one."""

    def __init__(self, loop: Loop, tell: Callable[[ReplicaExited, Usage | None], None]) -> None:
        self._loop = loop
        self._tell = tell
        self._awaited: set[str] = set()
        self._held: list[End] = []

    def expect(self, host: str) -> None:
        """A host is told something."""
        if host not in self._awaited:
            self._awaited.add(host)
            self._loop.call_later(_PATIENCE_SECONDS, partial(self.done, host))

    def add(self, event: ReplicaExited, usage: Usage | None) -> None:
        """A host says how somebody ended, by the clock of this machine."""
        self._held.append((event, usage))
        self._go_on()

    def done(self, host: str) -> None:
        """A host has done what it was told, or is not waited for any more."""
        self._awaited.discard(host)
        self._go_on()

    def _go_on(self) -> None:
        if self._awaited:
            return
        held, self._held = sorted(self._held, key=lambda each: each[0].at_seconds), []
        for event, usage in held:
            self._tell(event, usage)
