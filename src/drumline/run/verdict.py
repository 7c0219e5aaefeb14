"""What the exit of a replica means: the first replica to end is the cause."""

from __future__ import annotations

from drumline.plan.types import Plan
from drumline.run.event import Cause, Evidence, Exit, ReplicaExited
from drumline.run.failure import describe_exit, failed_by_itself, failure_class, ran_out_of_memory, reason_of
from drumline.run.hang import aborted_for_stacks
from drumline.run.state import Ending, Phase, ReplicaState, RunState
from drumline.run.success import can_fail_run

# A replica that exits ends the others, whatever its exit code: an exit with 0 this many seconds (least and most) before
# a crash is its cause. Peers do not notice an exit in less time.
CONSEQUENCE_SECONDS = (0.05, 15.0)


def ended_before_decision(event: ReplicaExited, state: RunState) -> bool:
    """Return whether an exit happened before the one that decided, and is only reported after it.

    The time of an exit that was not observed is only when it was noticed, and proves nothing.
    """
    decided = state.ending.at_seconds if state.ending else None
    return decided is not None and event.exit.seen and event.at_seconds < decided


def find_cause(plan: Plan, state: RunState, event: ReplicaExited) -> Cause:
    """Return the cause of a failed replica: the first replica that exited, whatever its exit code."""
    exit_, reason = event.exit, reason_of(event.exit)
    own = own_error(event.evidence)
    # Replicas depend on each other only in a framework. A plain command, a missing command, one that ran out of memory
    # and one with an error of its own fail by themselves.
    alone = own or reason in ("CannotExecute", "OutOfMemory")
    if plan.framework != "plain" and failed_by_itself(exit_, plan.framework) and not alone:
        shortest, longest = CONSEQUENCE_SECONDS
        finished = [
            (replica.at_seconds, name)
            for name, replica in state.replicas.items()
            if replica.exit is not None
            and replica.exit.ok
            and can_fail_run(name)
            and shortest <= event.at_seconds - replica.at_seconds <= longest
        ]
        if finished:
            at_seconds, first = min(finished)
            after = f"{event.replica} failed {event.at_seconds - at_seconds:.1f} s later: {describe_exit(exit_)}"
            return Cause(first, state.attempt, Exit(code=0, message=after), "crash", "LeftEarly")
    reason = "LeftEarly" if exit_.ok else reason
    return Cause(event.replica, state.attempt, exit_, failure_class(exit_, plan.framework), reason, own)


def own_error(evidence: Evidence | None) -> str:
    """Return the error of the replica itself; empty if it only reports on others."""
    return evidence.said if evidence and not evidence.reports else ""


def ending_on_request(ending: Ending | None, at_seconds: float, reason: str = "Asked") -> Ending:
    """Return the ending after a stop request: a success stays a success, anything else is killed and not restarted."""
    if ending and ending.phase is Phase.FINISHED:
        return ending.replace(at_seconds=None)
    if ending and ending.phase is Phase.KILLED:
        return ending
    if ending:
        return Ending(Phase.KILLED, reason, ending.cause, ending.at_seconds)
    return Ending(Phase.KILLED, reason, at_seconds=at_seconds)


def judge_exit(ending: Ending, event: ReplicaExited) -> ReplicaState:
    """Return the state of a replica that ended after the ending was decided."""
    phase, reason = _judged_phase(ending, event)
    return ended_state(event, phase, reason)


def ended_state(event: ReplicaExited, phase: Phase, reason: str = "") -> ReplicaState:
    """Return the state of a replica after this exit."""
    return ReplicaState(phase, event.incarnation, event.exit, reason, event.at_seconds, event.evidence)


def _judged_phase(ending: Ending, event: ReplicaExited) -> tuple[Phase, str]:
    if ending.phase is Phase.FINISHED:
        return Phase.FINISHED, "" if event.exit.ok else "RunOver"
    cause = ending.cause.replica if ending.cause else None
    if ending.phase is Phase.KILLED or cause is None:
        return Phase.KILLED, ending.reason
    if cause == event.replica:  # it was stopped because it had not started
        return Phase.FAILED, ending.reason
    # It failed by itself, whichever replica ended first.
    if ran_out_of_memory(event.exit) or (failed_by_itself(event.exit) and own_error(event.evidence)):
        return Phase.FAILED, reason_of(event.exit)
    if failed_by_itself(event.exit) and not aborted_for_stacks(ending, event.exit):
        return Phase.FAILED, "Consequence"
    return Phase.KILLED, "PeerFailed"
