"""Leaving the terminal: a supervisor is forked before there is any thread, and told later what it is for."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from drumline.errors import EngineError, InputError, NotFoundError
from drumline.plan.codec import plan_to_json
from drumline.plan.types import Plan

# Whatever else is needed here is so by one process alone: by who reads a spec, or by the supervisor.
if TYPE_CHECKING:
    from drumline.run.event import ResumeRequested, StopRequested
    from drumline.store.folder import RunFolder

    Asked = StopRequested | ResumeRequested

_REFUSALS = {kind.exit_code: kind for kind in (InputError, EngineError, NotFoundError)}


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


def take_up(folder: RunFolder, *, asked: Asked | None = None, spare: Spare | None = None) -> bool:
    """Give a run a supervisor, new or again, and tell it what is asked; False if it has one, which was told nothing.

    False, too, if a run that is to be resumed cannot be.
    """
    word = (spare or Spare()).look_after(str(folder.path.absolute()), asked=asked)
    if word not in ("ok", "busy", "refused"):
        raise _not_started(str(folder.path), word)
    return word == "ok"


class Begun(NamedTuple):
    """A run that a supervisor has made, in this folder; what is short all the same, and what else is to be said."""

    run: str
    shortages: str
    notes: Sequence[str]


class Spare:
    """A supervisor without a run: a process in a session of its own, which gets ready while it waits for orders.

    Whoever made it and leaves without orders takes it along. It takes one order.
    """

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._answer, word = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with held_interrupts():
            if os.fork() == 0:
                _live_alone(orders, word)
        os.close(orders)
        os.close(word)

    def look_after(self, run: str, *, asked: Asked | None = None) -> str:
        """Give it this run's folder and return what it acknowledges.

        If it fails before that, the answer is why, and nothing if it was killed. An interrupt that comes in between
        reaches neither: it is held back until the supervisor has the run.
        """
        with held_interrupts():
            return self._order({"run": run, "asked": _to_data(asked)})

    def launch(self, plan: Plan, *, spec: bytes, directory: str) -> Begun:
        """Have it make a run of a plan, under the next number, and look after it; raise whatever it refuses.

        Interrupts are to be held: there is a run then, to be named.
        """
        order = {"plan": plan_to_json(plan), "spec": spec.decode("latin-1"), "directory": directory}
        made, behind, word = self._order(order).partition("\n")
        if not behind:
            raise EngineError(f"the supervisor of a new run could not start: {made or 'it was killed'}")
        answer = json.loads(made)
        if "refused" in answer:
            code, message, hint = answer["refused"]
            raise _REFUSALS[code](message, hint=hint)
        begun = Begun(**answer)
        if word != "ok":
            raise _not_started(begun.run, word)
        return begun

    def _order(self, order: Mapping[str, object]) -> str:
        with suppress(BrokenPipeError), os.fdopen(self._orders, "wb") as stream:
            stream.write(json.dumps(order).encode())
        with os.fdopen(self._answer, "rb") as stream:
            return stream.read().decode()


def _not_started(run: str, word: str) -> EngineError:
    number = os.path.basename(run)  # noqa: PTH119
    return EngineError(
        f"the supervisor of run {number} could not start: {word or 'it was killed'}",
        hint=f"see {run}/supervisor.log; `drumline supervise {number}` tries again,"
        f" `drumline kill {number}` ends what runs",
    )


def _live_alone(orders: int, word: int) -> None:
    status = 1
    answer = _Answer(word)
    try:
        os.setsid()
        _let_go(orders, word)
        _follow_order(orders, answer)
        status = 0
    except BaseException as error:  # noqa: BLE001
        import traceback  # noqa: PLC0415 - hardly ever

        traceback.print_exc()
        sys.stderr.flush()
        answer.acknowledge(getattr(error, "strerror", None) or str(error) or type(error).__name__)
    finally:
        os._exit(status)


class _Answer:
    """What a supervisor says to whoever gave it its order, who may be gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def say(self, line: str) -> None:
        if self._descriptor is not None:
            with suppress(OSError):
                os.write(self._descriptor, f"{line}\n".encode())

    def acknowledge(self, word: str) -> None:
        """Say a last word."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.write(self._descriptor, word.encode())
            os.close(self._descriptor)
            self._descriptor = None


def _follow_order(orders: int, answer: _Answer) -> None:
    from drumline.supervise.order import follow  # noqa: PLC0415 - while whoever made us reads its spec

    with os.fdopen(orders, "rb") as stream:
        text = stream.read()
    if text:
        follow(json.loads(text), answer.say, answer.acknowledge)


def _to_data(asked: Asked | None) -> object:
    return None if asked is None else [type(asked).__name__, *asked]


def _let_go(*kept: int) -> None:
    """Hold nothing of the terminal, nor anything else that whoever launched has open."""
    null = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(null, target)
    for low, high in zip((2, *sorted(kept)), (*sorted(kept), 65536), strict=True):
        os.closerange(low + 1, high)
