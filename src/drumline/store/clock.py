"""One moment, by the clock on the wall and by the one that never goes back."""

from __future__ import annotations

import time

from drumline.record import Record


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
    """This moment, by the clocks that supervisors and keepers go by."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return Moment(time.time(), time.clock_gettime(clock), boot_id())


def boot_id() -> str:
    """Which boot of this machine it is; processes of another are gone.

    The keeper has the same function: who only reads runs does not wait for what a keeper imports, and that is one file,
    since other Pythons load it alone.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:  # noqa: PTH123
            return stream.read().strip()
    except OSError:
        return ""
