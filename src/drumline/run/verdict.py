"""What the end of a replica means, for itself and for the others: the first to go is the cause."""

from __future__ import annotations

from drumline.plan.types import Plan
from drumline.run.event import Cause, Evidence, Exit, ReplicaExited
from drumline.run.failure import describe_exit, failed_by_itself, failure_class, ran_out_of_memory, reason_of
from drumline.run.hang import aborted_for_stacks
from drumline.run.state import Ending, Phase, ReplicaState, RunState
from drumline.run.success import can_fail_run

# Whoever leaves first takes the others along, whatever its exit code: a peer's 0 so long before a crash is its cause.
# In less time nobody notices that a peer has left.
CONSEQUENCE_SECONDS = (0.05, 15.0)


def ended_before_decision(event: ReplicaExited, state: RunState) -> bool:
    """Whether an end came before what decided, and is only told after it.

    An end that nobody saw has only the time when it was noticed, and proves nothing.
    """
    decided = state.ending.at_seconds if state.ending else None
    return decided is not None and event.exit.seen and event.at_seconds < decided


def find_cause(plan: Plan, state: RunState, event: ReplicaExited) -> Cause:
    """Whoever went first, whatever its exit code, now that this one has failed."""
    exit_, reason = event.exit, reason_of(event.exit)
    own = own_error(event.evidence)
    # Only a framework ties its replicas together; a plain command, or one that was not there, falls by itself, and so
    # does whoever has eaten all its memory or says what it did wrong.
    alone = own or reason in ("CannotExecute", "OutOfMemory")
    if plan.framework != "plain" and failed_by_itself(exit_, plan.framework) and not alone:
        shortest, longest = CONSEQUENCE_SECONDS
        gone = [
            (replica.at_seconds, name)
            for name, replica in state.replicas.items()
            if replica.exit is not None
            and replica.exit.ok
            and can_fail_run(name)
            and shortest <= event.at_seconds - replica.at_seconds <= longest
        ]
        if gone:
            at_seconds, first = min(gone)
            after = f"{event.replica} fell {event.at_seconds - at_seconds:.1f} s later: {describe_exit(exit_)}"
            return Cause(first, state.attempt, Exit(code=0, message=after), "crash", "LeftEarly")
    reason = "LeftEarly" if exit_.ok else reason
    return Cause(event.replica, state.attempt, exit_, failure_class(exit_, plan.framework), reason, own)


def own_error(evidence: Evidence | None) -> str:
    """What a replica says that it did wrong itself; nothing of one that only reports on others."""
    return evidence.said if evidence and not evidence.reports else ""


def ending_on_request(ending: Ending | None, at_seconds: float, reason: str = "Asked") -> Ending:
    """A run that has already succeeded stays a success; one that is failing or waiting is killed, not restarted."""
    if ending and ending.phase is Phase.FINISHED:
        return ending.replace(at_seconds=None)
    if ending and ending.phase is Phase.KILLED:
        return ending
    if ending:
        return Ending(Phase.KILLED, reason, ending.cause, ending.at_seconds)
    return Ending(Phase.KILLED, reason, at_seconds=at_seconds)


def judge_exit(ending: Ending, event: ReplicaExited) -> ReplicaState:
    """Where a replica stands that ended after it was decided what the run comes to."""
    phase, reason = _judged_phase(ending, event)
    return ended_state(event, phase, reason)


def ended_state(event: ReplicaExited, phase: Phase, reason: str = "") -> ReplicaState:
    """Where a replica stands that ended like this."""
    return ReplicaState(phase, event.incarnation, event.exit, reason, event.at_seconds, event.evidence)


def _judged_phase(ending: Ending, event: ReplicaExited) -> tuple[Phase, str]:
    if ending.phase is Phase.FINISHED:
        return Phase.FINISHED, "" if event.exit.ok else "RunOver"
    culprit = ending.cause.replica if ending.cause else None
    if ending.phase is Phase.KILLED or culprit is None:
        return Phase.KILLED, ending.reason
    if culprit == event.replica:  # it was stopped because it had not started
        return Phase.FAILED, ending.reason
    # Its own fault, whoever went first.
    if ran_out_of_memory(event.exit) or (failed_by_itself(event.exit) and own_error(event.evidence)):
        return Phase.FAILED, reason_of(event.exit)
    if failed_by_itself(event.exit) and not aborted_for_stacks(ending, event.exit):
        return Phase.FAILED, "Consequence"
    return Phase.KILLED, "PeerFailed"
