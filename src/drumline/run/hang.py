"""Hangs: what a line that does not get on makes of a run; by what rule it counts as such is in `quiet`."""

from __future__ import annotations

from signal import Signals

from drumline.plan.types import COMPUTING, Plan, ReplicaId
from drumline.run.action import TakeStacks
from drumline.run.event import Cause, Exit, GangHung, RendezvousFailed, StacksTaken
from drumline.run.state import Ending, Phase, RunState


def fail_attempt(state: RunState, event: GangHung | RendezvousFailed) -> RunState:
    """Return the run with an attempt that has failed; before a replica is stopped, all stacks are saved."""
    if isinstance(event, GangHung):
        cause = Cause(None, state.attempt, Exit(message=event.message), "hang", "Hung")
    else:
        exit_ = Exit(message=event.message)
        cause = Cause(event.replica, state.attempt, exit_, "rendezvous", "RendezvousTimeout")
    return state.replace(ending=Ending(Phase.FAILED, cause.reason, cause), stacks_due=True)


def take_stacks(state: RunState) -> TakeStacks:
    """Save the stacks of everybody who is left."""
    left = (name for name, each in state.replicas.items() if not each.phase.is_final)
    return TakeStacks(state.attempt, state.current(left))


def add_diagnosis(plan: Plan, state: RunState, event: StacksTaken) -> RunState:
    """The same run with whom the stacks blame; they say where a culprit is who was known before.

    If they blame nobody of those who are left, it is who left before the others were done.
    """
    ending = state.ending
    state = state.replace(stacks_due=False)
    if ending is None or ending.cause is None or not event.message:
        return state
    cause = ending.cause
    gone = None if cause.replica or event.replica else _first_finished(plan, state)
    replica = cause.replica or event.replica or gone
    words = f"{event.message}, and {gone} has left" if gone else event.message
    exit_ = cause.exit.replace(message=f"{cause.exit.message}: {words}")
    state = state.replace(ending=ending.replace(cause=cause.replace(replica=replica, exit=exit_)))
    replica_state = state.replicas.get(replica) if replica else None
    if replica and replica_state and replica_state.phase is Phase.KILLED:  # it was ended by what showed its stacks
        state = state.with_replica(replica, replica_state.replace(phase=Phase.FAILED, reason=cause.reason))
    return state


def _first_finished(plan: Plan, state: RunState) -> ReplicaId | None:
    """Who was done before the others, in a line whose replicas need each other."""
    gone = [
        (each.at_seconds, name)
        for name, each in state.replicas.items()
        if name.role in COMPUTING and each.exit is not None and each.exit.ok
    ]
    return min(gone)[1] if gone and plan.framework != "plain" else None


def aborted_for_stacks(ending: Ending, exit_: Exit) -> bool:
    """Whether this is how Python ends when it is asked for its stacks."""
    hung = ending.cause is not None and ending.cause.failure in ("hang", "rendezvous")
    return hung and exit_.signal == Signals.SIGABRT
