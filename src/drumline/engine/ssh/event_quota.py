"""A limit for the events that a host may add to a run's journal: 100 at once, and then one every 10 s."""

from __future__ import annotations

_AT_ONCE = 100
_SECONDS_EACH = 10.0


class EventQuota:
    """Counts the events that one host has sent without a request."""

    def __init__(self, now: float) -> None:
        self._left = float(_AT_ONCE)
        self._at = now

    def take(self, now: float) -> float:
        """Count one more event and return 0.0 if it is allowed now; else return the seconds until it is."""
        self._left = min(_AT_ONCE, self._left + (now - self._at) / _SECONDS_EACH)
        self._at = now
        if self._left < 1:
            return (1 - self._left) * _SECONDS_EACH
        self._left -= 1
        return 0.0
