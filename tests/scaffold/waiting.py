"""Wait for a condition in another process by polling."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 600.0  # a limit for a busy machine; a wait ends as soon as it can

Found = TypeVar("Found")


def wait_until(look: Callable[[], Found | None], seconds: float = PATIENCE_SECONDS) -> Found:
    """Call `look` until its result is true, and return that; raise AssertionError after `seconds`.

    The process that is waited for needs the cores: calls take a fifth of the time at most, and become rarer.
    """
    began = looked = time.monotonic()
    while not (found := look()):
        now = time.monotonic()
        if now - began > seconds:
            raise AssertionError(f"not within {seconds:g} s")
        time.sleep(max(0.005, min((now - began) / 50, 0.05), min(4 * (now - looked), 0.3)))
        looked = time.monotonic()
    return found
