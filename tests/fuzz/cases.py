"""The registry of fuzz cases: one function for each reader, which generates a random input and reads it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from types import FrameType
from typing import NamedTuple

# CPU time, which does not depend on the load of the machine.
SLOW_SECONDS = 30.0
STUCK_SECONDS = 120.0  # wall-clock time


class Trial(NamedTuple):
    """The random generator of a case, and a folder that all cases of a reader share."""

    rng: Random
    folder: Path


Case = Callable[[Trial], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Register a case under the name of its function."""
    CASES[function.__name__] = function
    return function


def attempt(name: str, seed: int, folder: Path) -> None:
    """Try one case; every exception is an error, and so is exceeding the time limits."""
    with limited():
        CASES[name](Trial(Random(f"{name} {seed}"), folder))


@contextmanager
def limited() -> Iterator[None]:
    """Raise an error when the block takes too much CPU time or wall-clock time."""

    def give_up(number: int, _frame: FrameType | None) -> None:
        raise AssertionError("CPU time limit exceeded" if number == signal.SIGPROF else "time limit exceeded")

    before = {number: signal.signal(number, give_up) for number in (signal.SIGPROF, signal.SIGALRM)}
    timers = {signal.ITIMER_PROF: SLOW_SECONDS, signal.ITIMER_REAL: STUCK_SECONDS}
    others = {timer: signal.setitimer(timer, seconds, 1.0) for timer, seconds in timers.items()}
    try:
        yield
    finally:
        for timer, (seconds, interval) in others.items():  # the timeout of the test itself is restored
            signal.setitimer(timer, seconds, interval)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def silence() -> Iterator[None]:
    """Discard what is printed, with the encodings of a terminal."""
    with (
        open(os.devnull, "w", encoding="utf-8") as out,  # noqa: PTH123
        open(os.devnull, "w", encoding="utf-8", errors="backslashreplace") as err,  # noqa: PTH123
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        yield
