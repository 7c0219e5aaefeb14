"""A moment, by the system clock and by the monotonic clock of the boot."""

from __future__ import annotations

import time

from drumline.record import Record
from drumline.runtime.keeper import boot_id, now


class Moment(Record):
    """A point in time: UTC seconds; seconds since a boot; which boot that was."""

    at: float
    since_boot: float
    boot: str

    def seconds_since(self, start: Moment) -> float:
        """Return the seconds since `start`; never negative, even if the system clock was changed."""
        if self.boot == start.boot:
            return max(0.0, self.since_boot - start.since_boot)
        return max(0.0, self.at - start.at)


def read_clock() -> Moment:
    """Return the current moment, by the clocks that supervisors and keepers use."""
    return Moment(time.time(), now(), boot_id())
