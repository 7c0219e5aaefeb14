"""Reconsider the cause of a failed attempt when all replicas have ended and all evidence is known.

The first replica to end is the cause, unless it only reports a peer that ended later. A replica that waits for a stuck
process ends before that process; and if two replicas end together, either of them may be the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from drumline.plan.types import COMPUTING, Plan, ReplicaId
from drumline.record import Record
from drumline.run.event import Cause, Evidence, Exit
from drumline.run.failure import failed_by_itself, failure_class, lost_with_machine, ran_out_of_memory, reason_of
from drumline.run.state import Phase, ReplicaState, RunState
from drumline.run.success import can_fail_run
from drumline.run.verdict import own_error
from drumline.words import listed

# The time that an interpreter may take from an exception to its exit, while peers already report that it is gone.
_ENDING_SECONDS = 10.0

# The failure class if the first replica to end had waited for a peer, by the state of the peer that it reports.
_WAITED_FOR = {"silent": "hang", "absent": "rendezvous"}


class _FirstReport(Record):
    """The replica that decided the attempt by its exit, when it ended, and the evidence in which it reports a peer."""

    name: ReplicaId
    at_seconds: float
    evidence: Evidence


def reconsider_cause(plan: Plan, state: RunState) -> RunState:
    """Return the state with the cause that all evidence shows, and with the reasons of the replicas that depend on it.

    Idempotent.
    """
    cause = state.ending.cause if state.ending and state.ending.phase is Phase.FAILED else None
    if cause is None:
        return state
    better = _better_cause(plan, state, cause)
    return state if better is None or better == cause else _with_cause(state, cause, better)


def _better_cause(plan: Plan, state: RunState, cause: Cause) -> Cause | None:
    first = state.replicas.get(cause.replica) if cause.replica else None
    decided_at = state.ending.at_seconds if state.ending else None
    # If no exit decided, or the cause was reconsidered before:
    if cause.replica is None or first is None or first.at_seconds != decided_at:
        return _raised_without_ending(state, cause) if cause.reason == "Hung" else None
    if first.evidence is None or not first.evidence.reports:
        return None
    first_end = _FirstReport(cause.replica, first.at_seconds, first.evidence)
    found = _failed_later(plan.framework, state, first_end) or _lost_with_machine(plan.framework, state)
    return found or _missed_by_others(plan, state, first_end) or _waited_in_vain(state, cause, first.evidence.reports)


def first_report(state: RunState) -> str:
    """Return the state of a peer that the deciding replica reports: `gone`, `silent` or `absent`.

    Return an empty text if it reports no peer, and so is the cause itself.
    """
    cause = state.ending.cause if state.ending and state.ending.phase is Phase.FAILED else None
    first = state.replicas.get(cause.replica) if cause and cause.replica else None
    if state.ending is None or first is None or first.at_seconds != state.ending.at_seconds:
        return ""
    return first.evidence.reports if first.evidence else ""


def _waited_in_vain(state: RunState, cause: Cause, reports: str) -> Cause | None:
    """Return the cause if the first replica to end had waited for an unknown peer; None if it had not.

    If all computing replicas report a silent peer, they lost each other.
    """
    if reports not in _WAITED_FOR:
        return None
    computing = [each.evidence for name, each in state.replicas.items() if name.role in COMPUTING]
    all_silent = all(each is not None and each.reports == "silent" for each in computing)
    return cause.replace(failure="lost" if all_silent else _WAITED_FOR[reports], reason="WaitedInVain")


def _with_cause(state: RunState, cause: Cause, better: Cause) -> RunState:
    replicas = dict(state.replicas)
    if cause.replica in replicas:
        replicas[cause.replica] = replicas[cause.replica].replace(reason="Consequence")
    if better.replica in replicas:
        replicas[better.replica] = replicas[better.replica].replace(phase=Phase.FAILED, reason=better.reason)
    ending = state.ending.replace(reason=better.reason, cause=better) if state.ending else None
    return state.replace(ending=ending, replicas=replicas)


def _raised_without_ending(state: RunState, cause: Cause) -> Cause | None:
    """Return the cause if a replica raised an exception and did not end: at exit, JAX waits for peers."""
    for name, each in state.replicas.items():
        if can_fail_run(name) and (words := own_error(each.evidence)):
            exit_ = Exit(message=f"failed and did not end; {cause.exit.message}")
            return Cause(name, state.attempt, exit_, "crash", "Exited", words)
    return None


def _failed_later(framework: str, state: RunState, first_end: _FirstReport) -> Cause | None:
    """Return the cause if a replica ended a little later with its own error, or because memory ran out."""
    found = [
        (each.at_seconds, name, each.exit, own_error(each.evidence))
        for name, each in state.replicas.items()
        if name != first_end.name and can_fail_run(name) and each.exit
        if _failed_itself(framework, name, each.exit, each, first_end)
    ]
    if not found:
        return None
    _, name, exit_, words = min(found, key=lambda each: each[:2])
    if failed_by_itself(exit_, framework):
        return Cause(name, state.attempt, exit_, failure_class(exit_, framework), reason_of(exit_), words)
    # The replica had failed already, and was stopped while it ended.
    exit_ = Exit(message=f"failed and was stopped while it ended; {_quote(first_end)}")
    return Cause(name, state.attempt, exit_, "crash", "Exited", words)


def _failed_itself(
    framework: str, name: ReplicaId, exit_: Exit, replica: ReplicaState, first_end: _FirstReport
) -> bool:
    if not (own_error(replica.evidence) or ran_out_of_memory(exit_)):
        return False
    if failed_by_itself(exit_, framework):
        return replica.at_seconds - first_end.at_seconds <= _ENDING_SECONDS
    return name in first_end.evidence.blames or not first_end.evidence.blames


def _lost_with_machine(framework: str, state: RunState) -> Cause | None:
    """Return the cause if the machine of a replica is gone: peers may report that before the engine does."""
    found = [
        (each.at_seconds, name, each.exit) for name, each in state.replicas.items() if each.exit and can_fail_run(name)
    ]
    for _, name, exit_ in sorted(found, key=lambda each: each[:2]):
        if lost_with_machine(exit_):
            return Cause(name, state.attempt, exit_, failure_class(exit_, framework), reason_of(exit_))
    return None


def _missed_by_others(plan: Plan, state: RunState, first_end: _FirstReport) -> Cause | None:
    """Return the cause if a running replica stopped answering or never joined the others; None if none is found.

    The cause is the replica that most peers name, or the only replica that reports no peer.
    """
    running = [
        name
        for name, each in state.replicas.items()
        if name == first_end.name or each.at_seconds > first_end.at_seconds
    ]
    votes = Counter(name for each in state.replicas.values() for name in _named_peers(each) if name in running)
    candidates = [name for name, count in votes.items() if count == max(votes.values())]
    if _only_name_each_other(plan, state, candidates):
        return _lost_each_other(state, candidates, first_end)
    if len(candidates) > 1:  # all replicas depend on the chief, and report it first, whichever replica is missing
        candidates = [name for name in candidates if name != plan.chief]
    if len(candidates) > 1:
        candidates = [name for name in candidates if name in _named_peers(state.replicas[first_end.name])]
    if not votes and first_end.evidence.reports != "gone":
        candidates = _without_report(state, first_end.name, running)
    return _missed(state, candidates[0], first_end) if len(candidates) == 1 else None


def _named_peers(replica: ReplicaState) -> tuple[ReplicaId, ...]:
    """Return the peers that a replica reports; none if it reports a closed connection, which may be a consequence."""
    return replica.evidence.blames if replica.evidence and replica.evidence.reports != "gone" else ()


def _only_name_each_other(plan: Plan, state: RunState, names: Sequence[ReplicaId]) -> bool:
    """Return whether exactly two replicas report each other, and the plan has no third one that could decide."""
    if len(names) != 2 or any(can_fail_run(each.id) and each.id not in names for each in plan.replicas):
        return False
    one, other = names
    return other in _named_peers(state.replicas[one]) and one in _named_peers(state.replicas[other])


def _lost_each_other(state: RunState, names: Sequence[ReplicaId], first_end: _FirstReport) -> Cause:
    """Return the cause for two replicas that lost each other: one of them, or both, may have been cut off."""
    lost = f"{listed(list(map(str, sorted(names))))} lost each other; {_quote(first_end)}"
    return Cause(None, state.attempt, Exit(message=lost), "lost", "Unreachable")


def _without_report(state: RunState, first_end: ReplicaId, running: Sequence[ReplicaId]) -> list[ReplicaId]:
    """Return the running chief and workers that report no peer, without the first replica to end."""
    reporting = [name for name, each in state.replicas.items() if each.evidence and each.evidence.reports]
    return [name for name in running if name.role in COMPUTING and name not in (first_end, *reporting)]


def _missed(state: RunState, name: ReplicaId, first_end: _FirstReport) -> Cause:
    if name == first_end.name:  # it and the others report each other
        said = next(
            f"{other} reported: {each.evidence.said}"
            for other, each in state.replicas.items()
            if each.evidence and name in _named_peers(each)
        )
        return Cause(name, state.attempt, Exit(message=f"could not be reached; {said}"), "lost", "Unreachable")
    quoted = _quote(first_end)
    if first_end.evidence.reports == "absent":
        return Cause(name, state.attempt, Exit(message=f"did not join the others; {quoted}"), "rendezvous", "Missing")
    own = state.replicas[name].evidence
    if own and own.reports == "silent" and any(name in _named_peers(state.replicas[each]) for each in own.blames):
        return Cause(name, state.attempt, Exit(message=f"could not be reached; {quoted}"), "lost", "Unreachable")
    return Cause(name, state.attempt, Exit(message=f"stopped answering; {quoted}"), "hang", "Unresponsive")


def _quote(first_end: _FirstReport) -> str:
    return f"{first_end.name} ended first: {first_end.evidence.said}"
