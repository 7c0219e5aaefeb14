"""Leaving the terminal: the command forks its supervisor before there is any thread, and waits for its word."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

Acknowledge = Callable[[str], None]


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back; one that came in between is raised behind the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def detach(log: Path, main: Callable[[Acknowledge], None]) -> str:
    """Run `main` in a session of its own and return what it acknowledges.

    If it fails before that, the answer is why, and nothing if it was killed. An interrupt that comes in between
    reaches neither: it is held back until the supervisor is on its own.
    """
    answer, word = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with held_interrupts():
        pid = os.fork()
        if pid == 0:
            _live_alone(log, main, word)
        os.close(word)
        with os.fdopen(answer, "rb") as stream:
            return stream.read().decode()


def _live_alone(log: Path, main: Callable[[Acknowledge], None], word: int) -> None:
    status = 1
    told = False

    def acknowledge(text: str) -> None:
        nonlocal told
        if not told:
            told = True
            with suppress(OSError):  # whoever asked may be gone
                os.write(word, text.encode())
            os.close(word)

    try:
        os.setsid()
        _let_go(log, word)
        main(acknowledge)
        status = 0
    except BaseException as error:  # noqa: BLE001
        traceback.print_exc()
        sys.stderr.flush()
        acknowledge(getattr(error, "strerror", None) or str(error) or type(error).__name__)
    finally:
        os._exit(status)


def _let_go(log: Path, word: int) -> None:
    """Hold nothing of the terminal, nor a folder, nor anything else that whoever launched has open."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        errors = null
    for target, source in ((0, null), (1, errors), (2, errors)):
        os.dup2(source, target)
    os.closerange(3, word)
    os.closerange(word + 1, 65536)
    os.chdir("/")
