"""Leaving the terminal: the command forks its supervisor before there is any thread, and waits for its word."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

Acknowledge = Callable[[str], None]


def detach(log: Path, main: Callable[[Acknowledge], None]) -> str:
    """Run `main` in a session of its own and return what it acknowledges, or nothing if it died before that.

    An interrupt that comes in between reaches neither: it is held back until the supervisor is on its own.
    """
    answer, word = os.pipe()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(answer)
        _live_alone(log, main, word)
    os.close(word)
    try:
        with os.fdopen(answer, "rb") as stream:
            return stream.read().decode()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _live_alone(log: Path, main: Callable[[Acknowledge], None], word: int) -> None:
    status = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for target, source in ((0, null), (1, errors), (2, errors)):
            os.dup2(source, target)
        os.close(null)
        os.close(errors)

        def acknowledge(text: str) -> None:
            os.write(word, text.encode())
            os.close(word)

        main(acknowledge)
        status = 0
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)
