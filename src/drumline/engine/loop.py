"""asyncio's event loop with the clock of keepers and journal."""

from __future__ import annotations

import asyncio

from drumline.runtime import keeper


class BootClockLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, with the clock that keepers use, which also runs while the machine is suspended."""

    def time(self) -> float:
        """Return the seconds since this machine was booted, including the time for which it was suspended."""
        return keeper.now()
