"""One drill: wait for the moment, inject the fault, and watch how the run recovers."""

from __future__ import annotations

import math
import time
from pathlib import Path

from drumline.engine.abilities import FaultInjector
from drumline.plan.types import ReplicaId
from drumline.record import Record
from drumline.run.drill import Fault, Outcome, check_cause, follow_outcome
from drumline.run.entry import Entry
from drumline.run.fold import fold, new_run
from drumline.run.goodput import RestartCost, Steps, restart_cost
from drumline.run.state import Phase
from drumline.run.traces import trace_dir
from drumline.runtime.keeper import now
from drumline.runtime.lock import is_locked
from drumline.store.folder import RunFolder
from drumline.store.journal import JournalReader
from drumline.supervise.requests import supervisor_gone
from drumline.view.steps import StepFollower

_POLL_SECONDS = 0.01


class Moment(Record):
    """When to inject the fault: at a step, when the replica's process starts, or some time after all replicas run.

    Without any of these, after the first step.
    """

    step: int | None = None
    at_start: bool = False
    after_seconds: float | None = None


class Report(Record):
    """The result of a drill. Seconds are since the fault, except where a comment differs; None means not known."""

    replica: ReplicaId
    fault: Fault
    attempt: int
    step: int | None  # the last step before the fault
    outcome: Outcome
    wrong: str  # what is wrong with the verdict; empty if it is right
    notice_seconds: float | None  # until the failure was noticed
    teardown_seconds: float | None  # since the failure was noticed, until the affected replicas were stopped
    first_step_seconds: float | None  # until the first step after the recovery
    lost: RestartCost
    came_back: bool  # whether the run has recovered
    has_steps: bool  # whether any step could be read


class Drill:
    """One drill of one run; a fault that can be undone is undone at its end."""

    def __init__(self, folder: RunFolder, replica: ReplicaId, fault: Fault, fault_injector: FaultInjector) -> None:
        self._folder = folder
        self._plan = folder.plan()
        self._replica = replica
        self._fault = fault
        self._fault_injector = fault_injector
        self._steps = StepFollower(folder, self._plan, now)
        self._journal = JournalReader(folder.journal_file, self._plan)
        self._state = new_run(self._plan)
        self._before = self._state  # at the fault
        self._since: list[Entry] = []  # since the fault
        self._injected_at: float | None = None
        self._step: int | None = None
        self._is_early = False  # whether the fault is injected when a replica starts, before any step

    def wait(self, moment: Moment) -> bool:
        """Wait for the moment of the fault; return True then, False if the run or the replica ends before it."""
        running_at: float | None = None
        self._is_early = moment.at_start
        while True:
            self._read_journal()
            own = self._state.replicas.get(self._replica)
            if self._state.phase.is_final or (own and own.phase.is_final):
                return False
            is_up = own is not None and own.phase is Phase.RUNNING
            if is_up and running_at is None and self._state.phase is Phase.RUNNING:
                running_at = now()
            if is_up and self._has_come(moment, running_at):
                return True
            self._pause()

    @property
    def too_late(self) -> str:
        """Return what had ended when `wait` returned False: the run or the replica, with its state."""
        own = self._state.replicas.get(self._replica)
        if self._state.phase.is_final or own is None:
            return f"run {self._folder.id} was already {self._state.phase}"
        return f"{self._folder.id}.{self._replica} was already {own.phase}"

    def inject(self) -> int | None:
        """Inject the fault; return the step that the run has reached."""
        self._before, self._since = self._state, []
        self._step = self._steps.highest_step(self._state.attempt)
        self._injected_at = now()
        self._fault_injector.inject(self._traces, self._replica, self._fault)
        return self._step

    def observe(self, within_seconds: float | None) -> Report:
        """Return the report when the run has recovered, has ended, or has used up its time."""
        injected_at = self._injected_at or now()
        try:
            while True:
                self._read_journal()
                report = self._report(injected_at)
                late = within_seconds is not None and now() - injected_at > within_seconds
                if report.came_back or report.outcome.is_over or late:
                    return report
                self._pause()
        finally:
            self._fault_injector.undo(self._traces, self._replica, self._fault)

    def _report(self, injected_at: float) -> Report:
        attempt = self._before.attempt
        outcome = follow_outcome(self._plan, self._before, self._replica, self._since)
        is_other = outcome.attempt != attempt
        before = self._steps.steps(attempt, until=math.inf if is_other else outcome.noticed_at or math.inf)
        again = self._steps_after_recovery(outcome)
        has_steps = before is not None or again is not None
        return Report(
            replica=self._replica,
            fault=self._fault,
            attempt=attempt,
            step=self._step,
            outcome=outcome,
            wrong=check_cause(outcome, self._replica, self._fault),
            notice_seconds=_after(injected_at, outcome.noticed_at),
            teardown_seconds=_after(outcome.noticed_at, outcome.cleared_at),
            first_step_seconds=again.first.at - injected_at if again else None,
            lost=restart_cost(outcome.attempt, before, again) if has_steps else RestartCost(outcome.attempt, None),
            came_back=again is not None or (not has_steps and self._has_recovered(outcome)),
            has_steps=has_steps,
        )

    def _has_recovered(self, outcome: Outcome) -> bool:
        """Return whether a run without readable steps has recovered: it runs or has finished."""
        return outcome.phase is Phase.FINISHED or (outcome.is_running and not self._is_early)

    def _steps_after_recovery(self, outcome: Outcome) -> Steps | None:
        """Return the steps that were taken after the recovery."""
        if outcome.noticed_at is None:
            return None
        since = 0.0 if outcome.attempt != self._before.attempt else outcome.noticed_at
        return self._steps.steps(outcome.attempt, since=since) if since == 0.0 or outcome.is_running else None

    def _has_come(self, moment: Moment, running_at: float | None) -> bool:
        if moment.at_start:
            return True
        if moment.step is not None:
            reached = self._steps.highest_step(self._state.attempt)
            return reached is not None and reached >= moment.step
        if moment.after_seconds is not None:
            return running_at is not None and now() - running_at >= moment.after_seconds
        return self._state.stepped and self._steps.steps(self._state.attempt) is not None

    @property
    def _traces(self) -> Path:
        """Return the trace folder of the incarnation that the fault is for."""
        state = self._state if self._injected_at is None else self._before
        return self._folder.path / trace_dir(self._replica, state.attempt, state.replicas[self._replica].incarnation)

    def _read_journal(self) -> None:
        for entry in self._journal.read():
            self._state = fold(self._state, entry.event, *entry.decisions)
            self._since.append(entry)
        self._steps.poll(self._state)

    def _pause(self) -> None:
        if not self._state.phase.is_final and not is_locked(self._folder.lock_file):
            self._read_journal()  # the supervisor writes to the journal before it exits
            if not self._state.phase.is_final:
                raise supervisor_gone(self._folder)
        time.sleep(_POLL_SECONDS)


def _after(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)
