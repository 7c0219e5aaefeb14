"""Limits of time and memory: exceeding one raises an error, and afterwards all settings are as before."""

from __future__ import annotations

import resource
import signal
from contextlib import suppress

import pytest

from drumline.spec.dialect.bounds import TooLongError, bounded


def compute_endlessly() -> None:
    while True:
        pass


def suppress_errors() -> None:
    with suppress(TooLongError):
        compute_endlessly()
    compute_endlessly()


def test_an_endless_computation_is_stopped_even_if_it_suppresses_the_error() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(TooLongError, match=r"takes more than 0\.05 seconds"), bounded(0.05):
        suppress_errors()
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_a_computation_that_takes_too_much_memory_is_stopped() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(MemoryError), bounded():
        bytearray(1 << 40)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
