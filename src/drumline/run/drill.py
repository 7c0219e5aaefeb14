"""A drill: somebody of a line is hurt on purpose, and it is seen what becomes of the run. Pure."""

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
    """What can be done to a replica from outside."""

    KILL = "kill"  # it is gone at once, as after the kernel's or an administrator's KILL
    TERM = "term"  # it is asked to leave, as a host does that is taken away
    PAUSE = "pause"  # it does nothing any more, and does not end
    CUT = "net-cut"  # it computes, and reaches nobody


class Outcome(Record):
    """What became of a run after somebody of it was hurt, as far as it is known; times by the clock of events."""

    noticed_at: float | None = None  # somebody knew that something is wrong
    cleared_at: float | None = None  # nothing was left of what had to go
    cause: Cause | None = None  # as the run names it
    attempt: int = 0  # that is under way now
    phase: Phase = Phase.RUNNING
    is_running: bool = False  # everybody whom the run needs is up again

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.phase.is_final


def default_target(plan: Plan) -> ReplicaId:
    """Who is hurt if nobody is named: the last worker that is not chief, else whoever is the last of the line."""
    workers = [replica.id for replica in plan.replicas if replica.id.role in COMPUTING and replica.id != plan.chief]
    return workers[-1] if workers else plan.replicas[-1].id


def follow_outcome(plan: Plan, before: RunState, victim: ReplicaId, entries: Iterable[Entry]) -> Outcome:
    """Return what these entries make of a run that was in this state when the victim was hurt."""
    state, found = before, Outcome(attempt=before.attempt, phase=before.phase)
    for entry in entries:
        at_seconds, event = entry.since_boot, entry.event
        earlier = state
        folded = fold_entry(earlier, event, entry.decisions)
        state, own = folded.state, folded.before_restart
        restarted = state.attempt != earlier.attempt
        is_victims = isinstance(event, ReplicaExited) and event.replica == victim and event.attempt == before.attempt
        if found.noticed_at is None and (own.ending or is_victims):
            found = found.replace(noticed_at=at_seconds)
        returned = len(state.revivals) > len(before.revivals) and not state.reviving
        if found.cleared_at is None and (restarted or returned or state.phase.is_final):
            found = found.replace(cleared_at=at_seconds)
        found = found.replace(cause=_cause(state, before) or found.cause)
        if isinstance(event, ReplicaExited) and is_victims and not can_fail_run(victim):
            found = found.replace(cause=_cause_of_exit(plan, event))
    return found.replace(
        attempt=state.attempt,
        phase=state.phase,
        is_running=found.noticed_at is not None and _is_up(state),
    )


def check_cause(outcome: Outcome, victim: ReplicaId, harm: Fault) -> str:
    """What is wrong with the cause that the run names; empty if it names who was hurt, and how."""
    cause = outcome.cause
    if cause is None:
        return f"nobody is named, and it was {victim}"
    if harm is Fault.CUT and cause.reason == "Unreachable" and cause.replica is None:
        return ""  # in a line of two that lost each other, nobody can say which was cut off
    if cause.replica != victim:
        return f"{cause.replica or 'nobody'} is named, and it was {victim}"
    wanted = {
        Fault.KILL: cause.exit.signal == Signals.SIGKILL and not cause.exit.out_of_memory,
        Fault.TERM: cause.failure == "preempted",
        Fault.PAUSE: cause.failure == "hang",
        Fault.CUT: cause.failure in ("lost", "hang"),
    }
    return "" if wanted[harm] else f"{victim} is named for another reason ({cause.failure})"


def _is_up(state: RunState) -> bool:
    return state.phase is Phase.RUNNING and not (state.ending or state.reviving or state.waiting)


def _cause_of_exit(plan: Plan, event: ReplicaExited) -> Cause | None:
    """What is said of the end of one whose fall nobody minds."""
    failure, reason = failure_class(event.exit, plan.framework), reason_of(event.exit)
    return None if event.exit.ok else Cause(event.replica, event.attempt, event.exit, failure, reason)


def _cause(state: RunState, before: RunState) -> Cause | None:
    """The first cause that has been named since."""
    if len(state.revivals) > len(before.revivals):
        return state.revivals[len(before.revivals)].cause
    if len(state.causes) > len(before.causes):
        return state.causes[len(before.causes)]
    return state.ending.cause if state.ending else None
