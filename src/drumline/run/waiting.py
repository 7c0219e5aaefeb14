"""Decide what happens if replicas do not start: they are given up, and may be the cause of a failure."""

from __future__ import annotations

from drumline.plan.types import TENSORBOARD, Plan, ReplicaId
from drumline.run.event import Cause, Exit, ReplicaWaits
from drumline.run.state import NOT_STARTED, Phase, RunState
from drumline.run.success import can_fail_run
from drumline.words import count

Late = tuple[ReplicaId, ...]


def cannot_start(state: RunState, event: ReplicaWaits) -> tuple[Late, Cause | None]:
    """Return what `start_timed_out` would return, if this event reports that a replica will never start.

    For any other event, return no replicas and no cause.
    """
    name, replica_state = event.replica, state.state_of(event.replica)
    if replica_state is None or replica_state.phase not in NOT_STARTED or name == TENSORBOARD:
        return (), None
    if not event.is_fatal or state.ending:
        return (), None
    if not can_fail_run(name):
        return (name,), None
    return (name,), Cause(name, state.attempt, Exit(message=event.message), "engine", "CannotStart")


def start_timed_out(plan: Plan, state: RunState) -> tuple[Late, Cause | None]:
    """Return the replicas that did not start in time, and the cause if one of them can fail the run."""
    late = tuple(name for name, each in state.replicas.items() if each.phase is Phase.STARTING)
    counting = [name for name in late if can_fail_run(name)]
    if not counting:
        return late, None
    explained = [name for name in counting if state.replicas[name].waits]
    first = (explained or counting)[0]
    words = f"did not start within {plan.timeouts.start_seconds:g} s"
    if waits := state.replicas[first].waits:
        words += f": {waits}"
        if len(counting) > 1:
            words += f"; nor did {count(len(counting) - 1, 'other')}"
    return late, Cause(first, state.attempt, Exit(message=words), "lost", "StartTimeout")
