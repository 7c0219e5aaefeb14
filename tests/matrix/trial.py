"""Run one cell, and compare the result with what is expected."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from typing import NamedTuple

from drumline.errors import DrumlineError
from drumline.plan.types import ReplicaId
from drumline.run.event import Cause
from drumline.run.state import Phase, RunState
from drumline.words import listed
from matrix.cells import AFTER, FROM_OUTSIDE, SUPERVISOR_KILL, Cell
from matrix.oracle import LOSSES, Expected, expect
from matrix.testbed import MatrixTestBed, Trial
from scaffold.waiting import wait_until

_STEP = re.compile(r"^step (\d+) loss ([\d.]+)$", re.MULTILINE)
_SAVED = re.compile(r"^saved (\d+)$", re.MULTILINE)
_CONTINUES = re.compile("continues without it|not started again")
CHIEF = ReplicaId("chief", 0)


class Result(NamedTuple):
    """The result of a cell."""

    cell: Cell
    expected: Expected
    problems: tuple[str, ...]
    seconds: float
    seen: str = ""  # summary
    skipped: str = ""  # the reason


def try_cell(testbed: MatrixTestBed, cell: Cell) -> Result:
    """Start a gang, inject the fault, wait for the end of the run, and compare it with what is expected."""
    expected = expect(cell)
    if why := testbed.why_skipped(cell):
        return Result(cell, expected, (), 0.0, skipped=why)
    began = time.monotonic()
    with ExitStack() as stack:
        trial = testbed.start(cell, stack)
        try:
            inject(trial, cell)
            wait_until(lambda: trial.state().phase.is_final)
            problems = list(compare(trial, cell, expected))
        except (AssertionError, DrumlineError) as error:
            problems = [f"{error}"]
        finally:
            trial.end()
        return Result(cell, expected, tuple(problems), time.monotonic() - began, describe(trial.state()))


def inject(trial: Trial, cell: Cell) -> None:
    """Inject the faults that come from outside, when the phase is reached; wait for the others."""
    if cell.phase == AFTER:
        wait_until(lambda: has_succeeded(trial.state()))
        trial.mark("reached")
    wait_until(lambda: trial.has_mark("reached"))
    if cell.fault in FROM_OUTSIDE:
        trial.mark("injecting")
        trial.inject(cell.victim, cell.fault)
    else:
        wait_until(lambda: trial.is_gone(cell.victim))
    trial.mark("injected")
    if cell.fault in ("network cut", SUPERVISOR_KILL):
        trial.mark("go")


def has_succeeded(state: RunState) -> bool:
    chief = state.replicas.get(CHIEF)
    assert not state.causes, state.causes
    return chief is not None and chief.phase is Phase.FINISHED


def compare(trial: Trial, cell: Cell, expected: Expected) -> list[str]:
    """Return the differences from what is expected."""
    state, wrong = trial.state(), []
    if state.phase is not expected.phase:
        wrong.append(f"{state.phase}, and not {expected.phase}")
    causes = causes_of(state)
    accepted = [[name] for name in expected.named] or [[]]
    if [str(cause.replica or "") for cause in causes] not in accepted:
        wrong.append(f"named {[str(cause.replica) for cause in causes]}, and not {expected.named or 'no replica'}")
    elif causes and causes[0].failure not in expected.failures:
        wrong.append(f"it was {causes[0].failure}, and not {' or '.join(expected.failures)}")
    said = [warning for warning in state.warnings if cell.victim in warning and _CONTINUES.search(warning)]
    if expected.warns != bool(said):
        wrong.append(f"warnings: {state.warnings}")
    if units_of(state) != ([expected.unit] if expected.unit else []):
        wrong.append(f"started again: {units_of(state) or 'nothing'}, and not {expected.unit or 'nothing'}")
    wrong += compare_steps(trial, state, expected)
    try:
        wait_until(lambda: not trial.left(), 60)
    except AssertionError:
        wrong.append(f"left alive: {trial.left()}")
    return wrong


def compare_steps(trial: Trial, state: RunState, expected: Expected) -> list[str]:
    """Compare the chief's steps: the losses of a run without faults, and the steps at which it continued."""
    logs = [
        trial.log("chief.0", attempt, incarnation) for attempt in range(state.attempt + 1) for incarnation in range(4)
    ]
    wrong, taken, saved, began = [], set[int](), 0, list[int]()
    for log in logs:
        steps = {int(step): float(loss) for step, loss in _STEP.findall(log)}
        wrong += [
            f"step {number} has loss {loss}" for number, loss in steps.items() if abs(LOSSES[number] - loss) > 1e-3
        ]
        if steps and min(steps) != saved + 1:
            wrong.append(f"went on at step {min(steps)}, and step {saved} was saved")
        began += [min(steps)] if steps else []
        taken |= steps.keys()
        saved = max([saved, *map(int, _SAVED.findall(log))])
    if expected.trained and taken != LOSSES.keys():
        wrong.append(f"steps {sorted(taken)} were taken")
    if expected.resumes_at and (not began or began[-1] not in expected.resumes_at):
        wrong.append(f"went on at step {began[-1] if began else None}, and not {expected.resumes_at}")
    return wrong


def units_of(state: RunState) -> list[str]:
    """Return what started again, each time: the gang, or single roles while the others went on."""
    single = [listed(sorted({name.role for name in revival.replicas})) for revival in state.revivals]
    return [*single, *["gang"] * state.attempt]


def causes_of(state: RunState) -> tuple[Cause, ...]:
    """Return every cause that a run has recorded."""
    last = (state.ending.cause,) if state.ending and state.ending.cause else ()
    return (*(revival.cause for revival in state.revivals), *state.causes, *last)


def describe(state: RunState) -> str:
    """Return a summary such as `FINISHED; gang: worker.0 crash`."""
    causes = ", ".join(f"{cause.replica or 'no replica'} {cause.failure}" for cause in causes_of(state))
    again = ", ".join(units_of(state))
    return "; ".join(part for part in (state.phase.value, f"{again}: {causes}" if again else causes) if part)
