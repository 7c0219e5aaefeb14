"""Handle hangs: an attempt without progress fails. `run.idle` has the rule by which an attempt counts as hung."""

from __future__ import annotations

from signal import Signals

from drumline.plan.types import COMPUTING, Plan, ReplicaId
from drumline.run.action import TakeStacks
from drumline.run.event import Cause, Exit, GangHung, RendezvousFailed, StacksTaken
from drumline.run.state import Ending, Phase, RunState


def fail_attempt(state: RunState, event: GangHung | RendezvousFailed) -> RunState:
    """Return the state with a failed attempt; all stacks are saved before a replica is stopped."""
    if isinstance(event, GangHung):
        cause = Cause(None, state.attempt, Exit(message=event.message), "hang", "Hung")
    else:
        exit_ = Exit(message=event.message)
        cause = Cause(event.replica, state.attempt, exit_, "rendezvous", "RendezvousTimeout")
    return state.replace(ending=Ending(Phase.FAILED, cause.reason, cause), stacks_due=True)


def take_stacks(state: RunState) -> TakeStacks:
    """Return the action that saves the stacks of all remaining replicas."""
    left = (name for name, each in state.replicas.items() if not each.phase.is_final)
    return TakeStacks(state.attempt, state.current(left))


def add_diagnosis(plan: Plan, state: RunState, event: StacksTaken) -> RunState:
    """Return the state with the cause that the stacks show; the message of a known cause is extended by them.

    If the stacks show no replica as the cause, the cause is the replica that finished before the others.
    """
    ending = state.ending
    state = state.replace(stacks_due=False)
    if ending is None or ending.cause is None or not event.message:
        return state
    cause = ending.cause
    finished = None if cause.replica or event.replica else _first_finished(plan, state)
    replica = cause.replica or event.replica or finished
    words = f"{event.message}, and {finished} has exited" if finished else event.message
    exit_ = cause.exit.replace(message=f"{cause.exit.message}: {words}")
    state = state.replace(ending=ending.replace(cause=cause.replace(replica=replica, exit=exit_)))
    replica_state = state.replicas.get(replica) if replica else None
    if replica and replica_state and replica_state.phase is Phase.KILLED:  # the request for its stacks ended it
        state = state.with_replica(replica, replica_state.replace(phase=Phase.FAILED, reason=cause.reason))
    return state


def _first_finished(plan: Plan, state: RunState) -> ReplicaId | None:
    """Return the replica that finished first, if the replicas need each other."""
    finished = [
        (each.at_seconds, name)
        for name, each in state.replicas.items()
        if name.role in COMPUTING and each.exit is not None and each.exit.ok
    ]
    return min(finished)[1] if finished and plan.framework != "plain" else None


def aborted_for_stacks(ending: Ending, exit_: Exit) -> bool:
    """Return whether Python was ended by the signal that requests its stacks."""
    hung = ending.cause is not None and ending.cause.failure in ("hang", "rendezvous")
    return hung and exit_.signal == Signals.SIGABRT
