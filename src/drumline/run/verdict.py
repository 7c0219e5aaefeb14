"""Judge the exit of a replica: its phase and reason, and the cause of the attempt's failure."""

from __future__ import annotations

from drumline.plan.types import Plan
from drumline.run.event import Cause, Evidence, Exit, ReplicaExited
from drumline.run.failure import describe_exit, failed_by_itself, failure_class, ran_out_of_memory, reason_of
from drumline.run.hang import aborted_for_stacks
from drumline.run.state import Ending, Phase, ReplicaState, RunState
from drumline.run.success import can_fail_run

# The exit of one replica makes the others crash, whatever its exit code. So an exit with code 0 is the cause of a crash
# that follows within this time (least and most seconds). Peers do not notice an exit in less time.
CONSEQUENCE_SECONDS = (0.05, 15.0)


def ended_before_decision(event: ReplicaExited, state: RunState) -> bool:
    """Return whether an exit happened before the deciding exit, and was only reported after it.

    False for an exit that was not observed: its time is only the time when it was noticed.
    """
    decided = state.ending.at_seconds if state.ending else None
    return decided is not None and event.exit.seen and event.at_seconds < decided


def find_cause(plan: Plan, state: RunState, event: ReplicaExited) -> Cause:
    """Return the cause of the failure of a replica: usually its own exit.

    It is the exit of another replica with code 0 if that happened shortly before, and the replica shows no other cause.
    """
    exit_, reason = event.exit, reason_of(event.exit)
    own = own_error(event.evidence)
    # Replicas depend on each other only in a framework. A replica fails by itself if it runs a plain command, if its
    # command cannot be executed, if it ran out of memory, or if its log shows its own error.
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
    """Return the error of the replica itself; empty if it only reports a peer, or if there is no evidence."""
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
    # Such a replica failed by itself, even if it was not the first one to end.
    if ran_out_of_memory(event.exit) or (failed_by_itself(event.exit) and own_error(event.evidence)):
        return Phase.FAILED, reason_of(event.exit)
    if failed_by_itself(event.exit) and not aborted_for_stacks(ending, event.exit):
        return Phase.FAILED, "Consequence"
    return Phase.KILLED, "PeerFailed"
