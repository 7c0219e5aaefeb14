"""Bounds of time and memory: an error in whatever goes beyond them, and everything as before behind them."""

from __future__ import annotations

import resource
import signal
from contextlib import suppress

import pytest

from drumline.spec.dialect.bounds import TooLongError, bounded


def compute_for_ever() -> None:
    while True:
        pass


def pass_over_errors() -> None:
    with suppress(TooLongError):
        compute_for_ever()
    compute_for_ever()


def test_what_computes_for_ever_is_stopped_also_if_it_passes_over_errors() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(TooLongError, match=r"takes more than 0\.05 seconds"), bounded(0.05):
        pass_over_errors()
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_what_takes_all_memory_is_stopped() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(MemoryError), bounded():
        bytearray(1 << 40)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
