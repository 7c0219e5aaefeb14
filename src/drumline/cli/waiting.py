"""A notice about the thing that a command waits for, shown when the wait takes longer than a second."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from drumline.cli.terminal import is_terminal, print_line

NOTICE_SECONDS = 1.0


@contextmanager
def waiting_notice(message: str) -> Iterator[None]:
    """Print the message on a terminal if the block takes longer than a second.

    Uses an alarm instead of a thread, since the block may fork.
    """
    if not is_terminal(err=True):
        yield
        return
    handler = signal.signal(signal.SIGALRM, lambda *_: print_line(message, err=True))
    left, _ = signal.setitimer(signal.ITIMER_REAL, NOTICE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)  # an alarm that was set before fires a little later
        signal.signal(signal.SIGALRM, handler)
