"""Leaving the terminal: a supervisor is forked before there is any thread, and told which run it is for."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from drumline.errors import EngineError
from drumline.run.event import ResumeRequested, StopRequested
from drumline.store.folder import RunFolder

Acknowledge = Callable[[str], None]


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back; one that came in between is raised behind the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hold_interrupts() -> None:
    """Hold Ctrl-C back from now on, until somebody is there who can answer."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def release_interrupts() -> None:
    """Raise what was held back, if anything was."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


Asked = StopRequested | ResumeRequested


def take_up(folder: RunFolder, *, asked: Asked | None = None, spare: Spare | None = None) -> bool:
    """Give a run a supervisor, new or again, and tell it what is asked; False if it has one, which was told nothing.

    False, too, if a run that is to be resumed cannot be.
    """
    word = (spare or Spare()).look_after(folder.path, asked=asked)
    if word not in ("ok", "busy", "refused"):
        raise EngineError(
            f"the supervisor of run {folder.id} could not start: {word or 'it was killed'}",
            hint=f"see {folder.supervisor_log}; `drumline supervise {folder.id}` tries again,"
            f" `drumline kill {folder.id}` ends what runs",
        )
    return word == "ok"


class Spare:
    """A supervisor without a run: a process in a session of its own, which gets ready while it waits for orders.

    Whoever made it and leaves without orders takes it along. `run` is the folder of the run that it was given.
    """

    def __init__(self) -> None:
        self.run: Path | None = None
        orders, self._orders = os.pipe()
        self._answer, word = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with held_interrupts():
            if os.fork() == 0:
                _live_alone(orders, word)
        os.close(orders)
        os.close(word)

    def look_after(self, run: Path, *, asked: Asked | None = None) -> str:
        """Give it this run's folder and return what it acknowledges; to be called once.

        If it fails before that, the answer is why, and nothing if it was killed. An interrupt that comes in between
        reaches neither: it is held back until the supervisor has the run.
        """
        self.run = run
        with held_interrupts():
            with suppress(BrokenPipeError):
                os.write(self._orders, json.dumps([str(run.absolute()), _to_data(asked)]).encode())
            os.close(self._orders)
            with os.fdopen(self._answer, "rb") as stream:
                return stream.read().decode()


def _live_alone(orders: int, word: int) -> None:
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
        _let_go(orders, word)
        _look_after_one(orders, acknowledge)
        status = 0
    except BaseException as error:  # noqa: BLE001
        import traceback  # noqa: PLC0415 - hardly ever

        traceback.print_exc()
        sys.stderr.flush()
        acknowledge(getattr(error, "strerror", None) or str(error) or type(error).__name__)
    finally:
        os._exit(status)


def _look_after_one(orders: int, acknowledge: Acknowledge) -> None:
    from drumline.supervise.main import supervise  # noqa: PLC0415 - while whoever made us reads its spec

    with os.fdopen(orders, "rb") as stream:
        order = stream.read()
    if order:
        run, asked = json.loads(order)
        supervise(Path(run), acknowledge, asked=_from_data(asked))


def _to_data(asked: Asked | None) -> object:
    return None if asked is None else [type(asked).__name__, *asked]


def _from_data(data: list[Any] | None) -> Asked | None:
    if data is None:
        return None
    name, *fields = data
    return ResumeRequested(*fields) if name == ResumeRequested.__name__ else StopRequested(*fields)


def _let_go(*kept: int) -> None:
    """Hold nothing of the terminal, nor anything else that whoever launched has open."""
    null = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(null, target)
    for low, high in zip((2, *sorted(kept)), (*sorted(kept), 65536), strict=True):
        os.closerange(low + 1, high)
