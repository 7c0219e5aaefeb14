"""Drills: the outcome of a run after a fault was injected into one of its replicas. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from signal import Signals

from drumline.plan.types import COMPUTING, Plan, ReplicaId
from drumline.record import Record
from drumline.run.entry import Entry
from drumline.run.event import Cause, ReplicaExited
from drumline.run.failure import failure_class, reason_of
from drumline.run.fold import fold_entry
from drumline.run.state import Phase, RunState
from drumline.run.success import can_fail_run


class Fault(StrEnum):
    """A fault that can be injected into a replica from outside."""

    KILL = "kill"  # the replica gets KILL, as from the kernel or an administrator
    TERM = "term"  # the replica gets TERM, as on a host that is preempted
    PAUSE = "pause"  # the replica gets STOP: it does not run and does not end
    CUT = "net-cut"  # the replica runs without a network


class Outcome(Record):
    """The state of a run after the fault, as far as it is known; times are seconds by the clock of events."""

    noticed_at: float | None = None  # when a failure was recorded
    cleared_at: float | None = None  # when no process was left that had to end
    cause: Cause | None = None  # the recorded cause
    attempt: int = 0  # the current attempt
    phase: Phase = Phase.RUNNING
    is_running: bool = False  # all replicas that the run needs are running again

    @property
    def is_over(self) -> bool:
        """Return whether the run has ended."""
        return self.phase.is_final


def default_target(plan: Plan) -> ReplicaId:
    """Return the replica that gets the fault if the user names none.

    This is the last worker that is not the chief, else the last replica.
    """
    workers = [replica.id for replica in plan.replicas if replica.id.role in COMPUTING and replica.id != plan.chief]
    return workers[-1] if workers else plan.replicas[-1].id


def follow_outcome(plan: Plan, before: RunState, target: ReplicaId, entries: Iterable[Entry]) -> Outcome:
    """Return the outcome of a run that was in the state `before` at the fault, after these entries."""
    state, found = before, Outcome(attempt=before.attempt, phase=before.phase)
    for entry in entries:
        at_seconds, event = entry.since_boot, entry.event
        earlier = state
        folded = fold_entry(earlier, event, entry.decisions)
        state, before_restart = folded.state, folded.before_restart
        restarted = state.attempt != earlier.attempt
        is_target_exit = (
            isinstance(event, ReplicaExited) and event.replica == target and event.attempt == before.attempt
        )
        if found.noticed_at is None and (before_restart.ending or is_target_exit):
            found = found.replace(noticed_at=at_seconds)
        returned = len(state.revivals) > len(before.revivals) and not state.reviving
        if found.cleared_at is None and (restarted or returned or state.phase.is_final):
            found = found.replace(cleared_at=at_seconds)
        found = found.replace(cause=_cause(state, before) or found.cause)
        if isinstance(event, ReplicaExited) and is_target_exit and not can_fail_run(target):
            found = found.replace(cause=_cause_of_exit(plan, event))
    return found.replace(
        attempt=state.attempt,
        phase=state.phase,
        is_running=found.noticed_at is not None and _is_up(state),
    )


def check_cause(outcome: Outcome, target: ReplicaId, fault: Fault) -> str:
    """Return what is wrong with the recorded cause; empty if it names the target and fits the fault."""
    cause = outcome.cause
    if cause is None:
        return f"no cause is named; the fault was in {target}"
    if fault is Fault.CUT and cause.reason == "Unreachable" and cause.replica is None:
        return ""  # if two replicas lost each other, either may have been cut off
    if cause.replica != target:
        return f"{cause.replica or 'no replica'} is named as the cause; the fault was in {target}"
    wanted = {
        Fault.KILL: cause.exit.signal == Signals.SIGKILL and not cause.exit.out_of_memory,
        Fault.TERM: cause.failure == "preempted",
        Fault.PAUSE: cause.failure == "hang",
        Fault.CUT: cause.failure in ("lost", "hang"),
    }
    return "" if wanted[fault] else f"{target} is named for another reason ({cause.failure})"


def _is_up(state: RunState) -> bool:
    return state.phase is Phase.RUNNING and not (state.ending or state.reviving or state.waiting)


def _cause_of_exit(plan: Plan, event: ReplicaExited) -> Cause | None:
    """Return the cause of the exit of a replica that cannot fail the run; None for a success."""
    failure, reason = failure_class(event.exit, plan.framework), reason_of(event.exit)
    return None if event.exit.ok else Cause(event.replica, event.attempt, event.exit, failure, reason)


def _cause(state: RunState, before: RunState) -> Cause | None:
    """Return the first cause that was recorded after the state `before`."""
    if len(state.revivals) > len(before.revivals):
        return state.revivals[len(before.revivals)].cause
    if len(state.causes) > len(before.causes):
        return state.causes[len(before.causes)]
    return state.ending.cause if state.ending else None
