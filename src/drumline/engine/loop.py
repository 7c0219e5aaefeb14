"""asyncio's loop by the clock of this machine."""

from __future__ import annotations

import asyncio

from drumline.runtime import keeper


class BootClockLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop; its time is the clock of every keeper, so that timers and journal agree across suspends."""

    def time(self) -> float:
        """Return the seconds since this machine was booted, sleep included."""
        return keeper.now()
