"""Ends are held back while a host has not done yet what it was told: it may know of an earlier one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from drumline.engine.ssh.replicas import HostReplica
from drumline.engine.tracker import LONGEST_HOLD_SECONDS, ReplicaTracker

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_PATIENCE_SECONDS = 5.0  # with a host that does not answer


class Replies:
    """Waits for hosts that were told something, longer for those that are reached."""

    def __init__(
        self,
        tracker: ReplicaTracker[HostReplica],
        loop: AbstractEventLoop,
        is_reached: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._tracker = tracker
        self._loop = loop
        self._is_reached = is_reached

    def expect(self, host: str) -> int:
        """Hold ends back for a host that is told something; return the number of its reply."""
        number = self._tracker.hold(host)
        self._wait(host, number, LONGEST_HOLD_SECONDS)
        return number

    def _wait(self, host: str, number: int, seconds: float) -> None:
        def look() -> None:
            if self._tracker.is_held(host, number) and seconds > _PATIENCE_SECONDS and self._is_reached(host):
                self._wait(host, number, seconds - _PATIENCE_SECONDS)
            else:
                self._tracker.release(host, number)

        self._loop.call_later(_PATIENCE_SECONDS, look)
