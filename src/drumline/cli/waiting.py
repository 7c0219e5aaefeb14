"""Saying what a command waits for, once that takes longer than a moment."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from drumline.cli.terminal import is_terminal, print_line

MOMENT_SECONDS = 1.0


@contextmanager
def waiting_notice(message: str) -> Iterator[None]:
    """While the block goes on, say this to somebody at a terminal if it takes longer than a moment.

    By an alarm and not by a thread: what is waited for may have to fork.
    """
    if not is_terminal(err=True):
        yield
        return
    handler = signal.signal(signal.SIGALRM, lambda *_: print_line(message, err=True))
    left, _ = signal.setitimer(signal.ITIMER_REAL, MOMENT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)  # whoever had set one waits a little longer
        signal.signal(signal.SIGALRM, handler)
