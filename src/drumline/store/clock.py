"""A moment, by the system clock and by the monotonic clock of the boot."""

from __future__ import annotations

import time

from drumline.record import Record
from drumline.runtime.keeper import boot_id, now


class Moment(Record):
    """A point in time, by two clocks."""

    at: float  # seconds since 1970 (UTC)
    since_boot: float  # seconds of the monotonic clock
    boot: str  # id of the boot to which `since_boot` belongs

    def seconds_since(self, start: Moment) -> float:
        """Return the seconds since `start`, by the monotonic clock within one boot; never negative."""
        if self.boot == start.boot:
            return max(0.0, self.since_boot - start.since_boot)
        return max(0.0, self.at - start.at)


def read_clock() -> Moment:
    """Return the current moment, by the clocks that supervisors and keepers use."""
    return Moment(time.time(), now(), boot_id())
