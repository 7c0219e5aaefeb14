"""Leaving the terminal: runs that go on by themselves are given to a supervisor, which is told what it is for."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from drumline.errors import EngineError, InputError, NotFoundError
from drumline.plan.codec import plan_to_json
from drumline.plan.types import Plan
from drumline.record import Record
from drumline.run.codec import event_to_data
from drumline.supervise.spare import Spare

if TYPE_CHECKING:  # who launches waits for neither
    from drumline.run.event import ResumeRequested, StopRequested
    from drumline.store.folder import RunFolder

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


def take_up(
    folder: RunFolder, *, asked: StopRequested | ResumeRequested | None = None, spare: Spare | None = None
) -> bool:
    """Give a run a supervisor, new or again, and tell it what is asked; False if it has one, which was told nothing.

    False, too, if a run that is to be resumed cannot be. An interrupt is held back until the supervisor has the run.
    """
    path = str(folder.path.absolute())
    with held_interrupts():
        order = {"run": path, "asked": None if asked is None else event_to_data(asked)}
        word = (spare or Spare()).order(json.dumps(order))
    if word not in ("ok", "busy", "refused"):
        raise _not_started(path, word)
    return word == "ok"


class Begun(Record):
    """A run that a supervisor has made, in this folder; what is short all the same, and what else is to be said."""

    run: str
    shortages: str
    notes: Sequence[str]


def launch(plan: Plan, *, spec: bytes, directory: str, spare: Spare) -> Begun:
    """Have a supervisor make a run of a plan, under the next number, and look after it; raise whatever it refuses.

    Interrupts are to be held: there is a run then, to be named.
    """
    order = {"plan": plan_to_json(plan), "spec": spec.decode("latin-1"), "directory": directory}
    made, behind, word = spare.order(json.dumps(order)).partition("\n")
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


def _not_started(run: str, word: str) -> EngineError:
    number = os.path.basename(run)  # noqa: PTH119
    return EngineError(
        f"the supervisor of run {number} could not start: {word or 'it was killed'}",
        hint=f"see {run}/supervisor.log; `drumline supervise {number}` tries again,"
        f" `drumline kill {number}` ends what runs",
    )
