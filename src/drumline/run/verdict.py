"""What the end of a replica means, for itself and for the others: the first to go is the cause."""

from __future__ import annotations

from drumline.run.event import Exit, ReplicaExited
from drumline.run.failure import failure_class, gave_up, reason_of
from drumline.run.state import Cause, Ending, Phase, ReplicaState, RunState
from drumline.run.success import counts

# A peer's exit code 0 so shortly before a failure is its cause: whoever leaves first takes the others along.
WITNESS_SECONDS = 15.0


def came_before(event: ReplicaExited, state: RunState) -> bool:
    """Whether an end came before the one that decided, and is only told after it.

    An end that nobody saw has only the time when it was noticed, and proves nothing.
    """
    by = state.ending.by if state.ending else None
    return by is not None and event.exit.seen and event.at_seconds < state.replicas[by].at_seconds


def find_cause(state: RunState, event: ReplicaExited) -> Cause:
    """Whoever went first, whatever its exit code, now that this one has failed."""
    exit_, reason = event.exit, reason_of(event.exit)
    if gave_up(exit_) and reason != "CannotExecute":
        gone = [
            (replica.at_seconds, name)
            for name, replica in state.replicas.items()
            if replica.exit is not None and replica.exit.ok and counts(name)
        ]
        gone = [each for each in gone if 0 <= event.at_seconds - each[0] <= WITNESS_SECONDS]
        if gone:
            return Cause(min(gone)[1], state.attempt, Exit(code=0), "crash", "LeftEarly")
    return Cause(event.replica, state.attempt, exit_, failure_class(exit_), "LeftEarly" if exit_.ok else reason)


def judge(ending: Ending, event: ReplicaExited) -> ReplicaState:
    """Where a replica stands that ended after it was decided what the run comes to."""
    phase, reason = _judge(ending, event)
    return ended(event, phase, reason)


def ended(event: ReplicaExited, phase: Phase, reason: str = "") -> ReplicaState:
    """Where a replica stands that ended like this."""
    return ReplicaState(phase, event.incarnation, event.exit, reason, event.at_seconds)


def _judge(ending: Ending, event: ReplicaExited) -> tuple[Phase, str]:
    if ending.phase is Phase.FINISHED:
        return Phase.FINISHED, "" if event.exit.ok else "RunOver"
    culprit = ending.cause.replica if ending.cause else None
    if ending.phase is Phase.KILLED or culprit is None:
        return Phase.KILLED, ending.reason
    if culprit == event.replica:  # it was stopped because it had not started
        return Phase.FAILED, ending.reason
    if gave_up(event.exit):
        return Phase.FAILED, "Consequence"
    return Phase.KILLED, "PeerFailed"
