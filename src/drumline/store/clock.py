"""One moment, by the clock on the wall and by the one that never goes back."""

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
        """How long after `start` this is; never negative, whatever was done to the clock on the wall."""
        if self.boot == start.boot:
            return max(0.0, self.since_boot - start.since_boot)
        return max(0.0, self.at - start.at)


def read_clock() -> Moment:
    """Return this moment, by the clocks that supervisors and keepers go by."""
    return Moment(time.time(), now(), boot_id())
