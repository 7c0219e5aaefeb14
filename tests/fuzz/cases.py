"""What is tried: one function for each reader, which makes up a case by chance and lets it be read."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from types import FrameType
from typing import NamedTuple

# Of the processor alone: a busy machine makes nothing slower.
SLOW_SECONDS = 30.0
STUCK_SECONDS = 120.0  # of the clock: whoever waits as long waits for ever


class Trial(NamedTuple):
    """The chance that makes a case, and a folder of its own that is there for all cases of a reader."""

    chance: Random
    folder: Path


Case = Callable[[Trial], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Have this tried, under its name."""
    CASES[function.__name__] = function
    return function


def attempt(name: str, seed: int, folder: Path) -> None:
    """Try one case; whatever it raises is a finding, and so is that it takes too long."""
    with limited():
        CASES[name](Trial(Random(f"{name} {seed}"), folder))


@contextmanager
def limited() -> Iterator[None]:
    """Raise an error when this has computed for too long, or waits for what never comes."""

    def give_up(number: int, _frame: FrameType | None) -> None:
        raise AssertionError("it computes for ever" if number == signal.SIGPROF else "it waits for ever")

    before = {number: signal.signal(number, give_up) for number in (signal.SIGPROF, signal.SIGALRM)}
    timers = {signal.ITIMER_PROF: SLOW_SECONDS, signal.ITIMER_REAL: STUCK_SECONDS}
    others = {timer: signal.setitimer(timer, seconds, 1.0) for timer, seconds in timers.items()}
    try:
        yield
    finally:
        for timer, (seconds, interval) in others.items():  # a test as a whole is limited as well
            signal.setitimer(timer, seconds, interval)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def silence() -> Iterator[None]:
    """Have what is printed printed for nobody, with the encodings of a terminal."""
    with (
        open(os.devnull, "w", encoding="utf-8") as out,  # noqa: PTH123
        open(os.devnull, "w", encoding="utf-8", errors="backslashreplace") as err,  # noqa: PTH123
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        yield
