"""Who is to blame, weighed once more when all of an attempt have ended and were heard.

The first to go is the cause, unless it only reports on a peer that went after it: whoever waits for a process that is
stuck leaves before it does, and of two that end together either may be the first.
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

# So long an interpreter may take from an exception to its end, while peers have already noticed that it has gone.
_ENDING_SECONDS = 10.0

# What it is if somebody has left who had waited in vain.
_WAITED_FOR = {"silent": "hang", "absent": "rendezvous"}


class _FirstReport(Record):
    """The replica whose end decided the attempt, when it ended, and what it reports of a peer."""

    name: ReplicaId
    at_seconds: float
    evidence: Evidence


def reconsider_cause(plan: Plan, state: RunState) -> RunState:
    """The same run with the cause that all evidence together speaks for, and everybody's part in it; once is enough."""
    cause = state.ending.cause if state.ending and state.ending.phase is Phase.FAILED else None
    if cause is None:
        return state
    better = _better_cause(plan, state, cause)
    return state if better is None or better == cause else _with_cause(state, cause, better)


def _better_cause(plan: Plan, state: RunState, cause: Cause) -> Cause | None:
    first = state.replicas.get(cause.replica) if cause.replica else None
    decided_at = state.ending.at_seconds if state.ending else None
    if cause.replica is None or first is None or first.at_seconds != decided_at:  # no end decided, or it was weighed
        return _raised_without_ending(state, cause) if cause.reason == "Hung" else None
    if first.evidence is None or not first.evidence.reports:
        return None
    witness = _FirstReport(cause.replica, first.at_seconds, first.evidence)
    found = _failed_later(plan.framework, state, witness) or _lost_with_machine(plan.framework, state)
    return found or _missed_by_others(plan, state, witness) or _waited_in_vain(state, cause, first.evidence.reports)


def first_report(state: RunState) -> str:
    """Return what the end that decided reports of a peer: `gone`, `silent` or `absent`; empty if it is the cause."""
    cause = state.ending.cause if state.ending and state.ending.phase is Phase.FAILED else None
    first = state.replicas.get(cause.replica) if cause and cause.replica else None
    if state.ending is None or first is None or first.at_seconds != state.ending.at_seconds:
        return ""
    return first.evidence.reports if first.evidence else ""


def _waited_in_vain(state: RunState, cause: Cause, reports: str) -> Cause | None:
    """Whoever was the first to go had waited in vain, and nobody knows for whom; if all had, they lost each other."""
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
    """Whoever has raised and did not end: JAX, for one, waits at its end for peers that wait for it."""
    for name, each in state.replicas.items():
        if can_fail_run(name) and (words := own_error(each.evidence)):
            exit_ = Exit(message=f"failed, and did not end; {cause.exit.message}")
            return Cause(name, state.attempt, exit_, "crash", "Exited", words)
    return None


def _failed_later(framework: str, state: RunState, witness: _FirstReport) -> Cause | None:
    """Whoever went a little later, and says what it did wrong itself; or starved."""
    found = [
        (each.at_seconds, name, each.exit, own_error(each.evidence))
        for name, each in state.replicas.items()
        if name != witness.name and can_fail_run(name) and each.exit
        if _failed_itself(framework, name, each.exit, each, witness)
    ]
    if not found:
        return None
    _, name, exit_, words = min(found, key=lambda each: each[:2])
    if failed_by_itself(exit_, framework):
        return Cause(name, state.attempt, exit_, failure_class(exit_, framework), reason_of(exit_), words)
    # It was on its way out when it was told to stop.
    exit_ = Exit(message=f"failed, and was stopped while it ended; {_quote(witness)}")
    return Cause(name, state.attempt, exit_, "crash", "Exited", words)


def _failed_itself(framework: str, name: ReplicaId, exit_: Exit, replica: ReplicaState, witness: _FirstReport) -> bool:
    if not (own_error(replica.evidence) or ran_out_of_memory(exit_)):
        return False
    if failed_by_itself(exit_, framework):
        return replica.at_seconds - witness.at_seconds <= _ENDING_SECONDS
    return name in witness.evidence.blames or not witness.evidence.blames


def _lost_with_machine(framework: str, state: RunState) -> Cause | None:
    """Whoever was on a machine that is gone: peers may miss it before anybody is sure of that."""
    found = [
        (each.at_seconds, name, each.exit) for name, each in state.replicas.items() if each.exit and can_fail_run(name)
    ]
    for _, name, exit_ in sorted(found, key=lambda each: each[:2]):
        if lost_with_machine(exit_):
            return Cause(name, state.attempt, exit_, failure_class(exit_, framework), reason_of(exit_))
    return None


def _missed_by_others(plan: Plan, state: RunState, witness: _FirstReport) -> Cause | None:
    """Whoever was still there, and yet did not answer or never came: named by most, or left over."""
    there = [
        name for name, each in state.replicas.items() if name == witness.name or each.at_seconds > witness.at_seconds
    ]
    votes = Counter(name for each in state.replicas.values() for name in _named_peers(each) if name in there)
    suspects = [name for name, count in votes.items() if count == max(votes.values())]
    if _only_name_each_other(plan, state, suspects):
        return _lost_each_other(state, suspects, witness)
    if len(suspects) > 1:  # all depend on the chief, and so miss it first, whoever is missing
        suspects = [name for name in suspects if name != plan.chief]
    if len(suspects) > 1:
        suspects = [name for name in suspects if name in _named_peers(state.replicas[witness.name])]
    if not votes and witness.evidence.reports != "gone":
        suspects = _without_report(state, witness.name, there)
    return _missed(state, suspects[0], witness) if len(suspects) == 1 else None


def _named_peers(replica: ReplicaState) -> tuple[ReplicaId, ...]:
    """Whom it missed; a connection that is gone may be so since its peer has gone as well, and for the same reason."""
    return replica.evidence.blames if replica.evidence and replica.evidence.reports != "gone" else ()


def _only_name_each_other(plan: Plan, state: RunState, names: Sequence[ReplicaId]) -> bool:
    """Whether two miss each other, and no third could say which of them has gone."""
    if len(names) != 2 or any(can_fail_run(each.id) and each.id not in names for each in plan.replicas):
        return False
    one, other = names
    return other in _named_peers(state.replicas[one]) and one in _named_peers(state.replicas[other])


def _lost_each_other(state: RunState, names: Sequence[ReplicaId], witness: _FirstReport) -> Cause:
    """What two come to that lost each other: nobody knows which of them was cut off, if not both."""
    lost = f"{listed(list(map(str, sorted(names))))} lost each other; {_quote(witness)}"
    return Cause(None, state.attempt, Exit(message=lost), "lost", "Unreachable")


def _without_report(state: RunState, witness: ReplicaId, there: Sequence[ReplicaId]) -> list[ReplicaId]:
    """Who of those that compute has nothing to complain of."""
    complain = [name for name, each in state.replicas.items() if each.evidence and each.evidence.reports]
    return [name for name in there if name.role in COMPUTING and name not in (witness, *complain)]


def _missed(state: RunState, name: ReplicaId, witness: _FirstReport) -> Cause:
    if name == witness.name:  # the others miss it as it misses them
        said = next(
            f"{other} says: {each.evidence.said}"
            for other, each in state.replicas.items()
            if each.evidence and name in _named_peers(each)
        )
        return Cause(name, state.attempt, Exit(message=f"could not be reached; {said}"), "lost", "Unreachable")
    quoted = _quote(witness)
    if witness.evidence.reports == "absent":
        return Cause(name, state.attempt, Exit(message=f"never met the others; {quoted}"), "rendezvous", "Missing")
    own = state.replicas[name].evidence
    if own and own.reports == "silent" and any(name in _named_peers(state.replicas[each]) for each in own.blames):
        return Cause(name, state.attempt, Exit(message=f"could not be reached; {quoted}"), "lost", "Unreachable")
    return Cause(name, state.attempt, Exit(message=f"stopped answering; {quoted}"), "hang", "Unresponsive")


def _quote(witness: _FirstReport) -> str:
    return f"{witness.name} left first: {witness.evidence.said}"
