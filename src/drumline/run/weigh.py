"""Who is to blame, weighed once more when all of an attempt have ended and were heard.

The first to go is the cause, unless it only reports on a peer that went after it: whoever waits for a process that is
stuck leaves before it does, and of two that end together either may be the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from drumline.plan.types import COMPUTING, Plan, ReplicaId
from drumline.run.event import Evidence, Exit
from drumline.run.failure import failure_class, gave_up, reason_of, starved
from drumline.run.state import Cause, Phase, ReplicaState, RunState
from drumline.run.success import counts
from drumline.run.verdict import own_words

# So long an interpreter may take from an exception to its end, while peers have already noticed that it has gone.
_ENDING_SECONDS = 10.0

# What it is that somebody left who had waited in vain, and nobody knows for whom.
_IN_VAIN = {"silent": "hang", "absent": "rendezvous"}


def weigh(plan: Plan, state: RunState) -> RunState:
    """The same run with the cause that all evidence together speaks for, and everybody's part in it."""
    ending = state.ending
    cause = ending.cause if ending and ending.phase is Phase.FAILED else None
    first = state.replicas.get(cause.replica) if cause and cause.replica else None
    if ending is None or cause is None or cause.replica is None or first is None or first.exit != cause.exit:
        return state  # nobody's exit decided
    if first.evidence is None or not first.evidence.reports:
        return state
    better = _who_failed(plan.framework, state, cause.replica, first) or _who_is_missed(state, cause.replica, first)
    if better is None:
        failure = _IN_VAIN.get(first.evidence.reports)
        better = cause._replace(failure=failure, reason="WaitedInVain") if failure else cause
    if better == cause:
        return state
    culprit = better.replica or cause.replica
    replicas = dict(state.replicas)
    replicas[cause.replica] = first._replace(reason="Consequence")
    replicas[culprit] = state.replicas[culprit]._replace(phase=Phase.FAILED, reason=better.reason)
    return state._replace(ending=ending._replace(reason=better.reason, cause=better), replicas=replicas)


def _who_failed(framework: str, state: RunState, witness: ReplicaId, first: ReplicaState) -> Cause | None:
    """Whoever went a little later, and says what it did wrong itself; or starved."""
    found = [
        (each.at_seconds, name, each)
        for name, each in state.replicas.items()
        if name != witness and counts(name) and _failed_itself(framework, name, each, first)
    ]
    for _, name, each in sorted(found):
        if each.exit is not None:
            words = own_words(each.evidence)
            if gave_up(each.exit, framework):
                failure = failure_class(each.exit, framework)
                return Cause(name, state.attempt, each.exit, failure, reason_of(each.exit), words)
            # It was on its way out when it was told to stop.
            exit_ = Exit(message=f"failed, and was stopped while it ended; {_quote(witness, first.evidence)}")
            return Cause(name, state.attempt, exit_, "crash", "Exited", words)
    return None


def _failed_itself(framework: str, name: ReplicaId, replica: ReplicaState, first: ReplicaState) -> bool:
    exit_, named = replica.exit, first.evidence.blames if first.evidence else ()
    if exit_ is None or not (own_words(replica.evidence) or starved(exit_)):
        return False
    if gave_up(exit_, framework):
        return replica.at_seconds - first.at_seconds <= _ENDING_SECONDS
    return name in named or not named


def _who_is_missed(state: RunState, witness: ReplicaId, first: ReplicaState) -> Cause | None:
    """Whoever was still there, and yet did not answer or never came: named by most, or left over."""
    if first.evidence is None:
        return None
    alive = [name for name, each in state.replicas.items() if each.at_seconds > first.at_seconds and name != witness]
    votes: Counter[ReplicaId] = Counter()
    for each in state.replicas.values():
        votes.update(name for name in (each.evidence.blames if each.evidence else ()) if name in alive)
    named = [name for name in first.evidence.blames if name in alive]
    suspects = [name for name, count in votes.items() if count == max(votes.values())]
    if named and not set(suspects) & set(named):
        suspects = named
    if len(suspects) > 1 and named:
        suspects = [name for name in suspects if name in named][:1]
    if not votes and first.evidence.reports != "gone":
        suspects = _left_over(state, alive)
    if len(suspects) != 1:
        return None
    return _missed(state, suspects[0], witness, first.evidence)


def _left_over(state: RunState, alive: Sequence[ReplicaId]) -> list[ReplicaId]:
    """Who of those that compute has nothing to complain of."""
    complain = [name for name, each in state.replicas.items() if each.evidence and each.evidence.reports]
    return [name for name in alive if name.role in COMPUTING and name not in complain]


def _missed(state: RunState, name: ReplicaId, witness: ReplicaId, evidence: Evidence) -> Cause | None:
    quoted = _quote(witness, evidence)
    own = state.replicas[name].evidence
    if evidence.reports == "absent":
        return Cause(name, state.attempt, Exit(message=f"never met the others; {quoted}"), "rendezvous", "Missing")
    if own and own.reports == "silent" and witness in own.blames:  # it lived, and missed the others as they missed it
        return Cause(name, state.attempt, Exit(message=f"could not be reached; {quoted}"), "lost", "Unreachable")
    if evidence.reports == "gone":
        return None
    return Cause(name, state.attempt, Exit(message=f"stopped answering; {quoted}"), "hang", "Unresponsive")


def _quote(witness: ReplicaId, evidence: Evidence | None) -> str:
    return f"{witness} left first: {evidence.said}" if evidence else f"{witness} left first"
