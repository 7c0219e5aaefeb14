"""Measure how the CPU time of a call grows with its input."""

from __future__ import annotations

import time
from collections.abc import Callable

_QUICK_SECONDS = 0.3


def growth(action: Callable[[bytes], object], small: bytes, large: bytes) -> float:
    """Return the CPU time of the large input divided by that of the small one; 1 if the large one takes no time."""
    long = _seconds(action, large)
    if long < _QUICK_SECONDS:
        return 1.0
    return min(long, _seconds(action, large)) / max(_QUICK_SECONDS / 100, _seconds(action, small))


def _seconds(action: Callable[[bytes], object], data: bytes) -> float:
    began = time.process_time()
    action(data)
    return time.process_time() - began
