"""The expected result of a cell, derived from the documentation and never from a run."""

from __future__ import annotations

from typing import NamedTuple

from drumline.run.state import Phase
from matrix.cells import AFTER, BEFORE, FIRST, MIDDLE, SAVING, SUPERVISOR, Cell

STEPS, EVERY = 10, 4
LOSSES = {step: 1 / (1 + step / 10) for step in range(1, STEPS + 1)}


class Expected(NamedTuple):
    """The expected end of a run, its cause, and the step at which it continues."""

    phase: Phase
    unit: str = ""  # what is started again: the gang, one replica, several; empty for nothing
    named: tuple[str, ...] = ()  # replicas that may be named as the cause; "" for none; empty without a cause
    failures: tuple[str, ...] = ()  # the class, or one of these
    resumes_at: tuple[int, ...] = ()  # the first step after the restart, or one of these; empty without a step
    trained: bool = True  # all steps have been taken
    warns: bool = False  # a warning states why training continues without a replica, or is not restarted


GOES_ON = Expected(Phase.FINISHED)


def expect(cell: Cell) -> Expected:
    """Return what is expected of a cell."""
    if cell.role == SUPERVISOR or cell.phase == AFTER:  # faults after the chief's success have no effect
        return GOES_ON
    if cell.role == "evaluator":
        return GOES_ON._replace(warns=cell.fault not in ("exit 0", "STOP"))
    if cell.role == "chief" and cell.fault == "exit 0":
        return GOES_ON._replace(trained=False)  # the chief's exit decides
    failures = classes(cell)
    if not is_retried(failures):
        return Expected(Phase.FAILED, "", named(cell), failures, trained=False, warns=failures == ("early",))
    unit = unit_of(cell)
    steps = () if unit == "worker" else resumes_at(cell)  # the chief continues when the worker is back
    return Expected(Phase.FINISHED, unit, named(cell), failures, steps)


def classes(cell: Cell) -> tuple[str, ...]:
    """Return the possible classes of failure; before the rendezvous, a silent replica may be of either of two."""
    if cell.fault == "OOM":
        return ("out_of_memory",)
    if cell.fault in ("STOP", "network cut"):
        silent = ("hang",) if cell.fault == "STOP" else ("hang", "lost")
        return ("rendezvous", *silent) if cell.phase in (BEFORE, FIRST) else silent
    if cell.fault == "exit 1" and cell.phase in (BEFORE, FIRST):
        return ("early",)
    if cell.fault == "exit 0":
        return ("rendezvous", "hang", "crash")  # its absence is noticed in one of these ways
    return ("crash",)


def is_retried(failures: tuple[str, ...]) -> bool:
    """Return False for out of memory, which needs an option, and for user code that fails before the first step."""
    return failures not in (("out_of_memory",), ("early",))


def named(cell: Cell) -> tuple[str, ...]:
    """Return the replicas that may be named. Of two without a connection, the one that was cut off is unknown."""
    return (cell.victim, "") if cell.fault == "network cut" else (cell.victim,)


def unit_of(cell: Cell) -> str:
    """Return what starts again: a mirrored gang as a whole; with parameter servers, single roles after the first step.

    Without a failed replica (no progress, or a missing replica) the whole gang starts again.
    """
    silent = cell.fault in ("STOP", "network cut") or (cell.fault == "exit 0" and cell.role == "worker")
    if cell.gang == "mirrored" or cell.phase in (BEFORE, FIRST) or silent:
        return "gang"
    return "chief, ps and worker" if cell.role == "ps" else cell.role


def resumes_at(cell: Cell) -> tuple[int, ...]:
    """Return the steps after the last complete checkpoint; with parameter servers, the chief may write one alone."""
    if cell.phase == SAVING and cell.gang == "ps" and cell.role == "worker":
        return EVERY + 1, 2 * EVERY + 1
    return ({BEFORE: 1, FIRST: 1, MIDDLE: EVERY + 1, SAVING: EVERY + 1}[cell.phase],)
