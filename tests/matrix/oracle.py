"""What must come of a cell, worked out from what the pages promise and from nothing that was seen."""

from __future__ import annotations

from typing import NamedTuple

from drumline.run.state import Phase
from matrix.cells import AFTER, BEFORE, FIRST, MIDDLE, SAVING, SUPERVISOR, Cell

STEPS, EVERY = 10, 4
LOSSES = {step: 1 / (1 + step / 10) for step in range(1, STEPS + 1)}


class Expected(NamedTuple):
    """How a run must end, what it must name as the cause, and where it must go on."""

    phase: Phase
    unit: str = ""  # who is started again: the line, one replica, several; nobody
    named: tuple[str, ...] = ()  # who may be named as the cause; nobody, if there is none
    failures: tuple[str, ...] = ()  # the class, or one of these
    resumes_at: tuple[int, ...] = ()  # the first step behind the restart, or one of these; none if nobody takes one
    trained: bool = True  # all steps have been taken
    warns: bool = False  # it is said why the training goes on without somebody, or is not started again


GOES_ON = Expected(Phase.FINISHED)


def expect(cell: Cell) -> Expected:
    """What must come of this."""
    if cell.role == SUPERVISOR or cell.phase == AFTER:
        return GOES_ON  # whoever supervises, and whatever falls when the chief is done
    if cell.role == "evaluator":
        return GOES_ON._replace(warns=cell.fault not in ("exit 0", "STOP"))
    if cell.role == "chief" and cell.fault == "exit 0":
        return GOES_ON._replace(trained=False)  # the chief decides, and says that it is done
    failures = classes(cell)
    if not is_retried(failures):
        return Expected(Phase.FAILED, "", named(cell), failures, trained=False, warns=failures == ("early",))
    unit = unit_of(cell)
    steps = () if unit == "worker" else resumes_at(cell)  # the chief goes on when a worker is back
    return Expected(Phase.FINISHED, unit, named(cell), failures, steps)


def classes(cell: Cell) -> tuple[str, ...]:
    """The class of failure; of a silence before the line has met, either of two, as it is heard."""
    if cell.fault == "OOM":
        return ("out_of_memory",)
    if cell.fault in ("STOP", "network cut"):
        silent = ("hang",) if cell.fault == "STOP" else ("hang", "lost")
        return ("rendezvous", *silent) if cell.phase in (BEFORE, FIRST) else silent
    if cell.fault == "exit 1" and cell.phase in (BEFORE, FIRST):
        return ("early",)
    if cell.fault == "exit 0":
        return ("rendezvous", "hang", "crash")  # it is missed, one way or the other
    return ("crash",)


def is_retried(failures: tuple[str, ...]) -> bool:
    """Out of memory is not, unless asked; nor is user code that fails by itself before the first step."""
    return failures not in (("out_of_memory",), ("early",))


def named(cell: Cell) -> tuple[str, ...]:
    """Who is named. Of two that cannot hear each other, nobody can say which was cut off."""
    return (cell.victim, "") if cell.fault == "network cut" else (cell.victim,)


def unit_of(cell: Cell) -> str:
    """Who starts again: who mirror each other fall together; who serve live apart, once there was a step.

    What does not get on, or is missed, has not fallen: it is the line that is given up.
    """
    silent = cell.fault in ("STOP", "network cut") or (cell.fault == "exit 0" and cell.role == "worker")
    if cell.line == "mirrored" or cell.phase in (BEFORE, FIRST) or silent:
        return "line"
    return "chief, ps and worker" if cell.role == "ps" else cell.role


def resumes_at(cell: Cell) -> tuple[int, ...]:
    """Behind the last checkpoint that was whole. To write one on parameter servers, the chief may not need a worker."""
    if cell.phase == SAVING and cell.line == "ps" and cell.role == "worker":
        return EVERY + 1, 2 * EVERY + 1
    return ({BEFORE: 1, FIRST: 1, MIDDLE: EVERY + 1, SAVING: EVERY + 1}[cell.phase],)
