"""Waiting: what replicas that have not started make of their run, and in words what they wait for."""

from __future__ import annotations

from collections.abc import Mapping

from drumline.plan.types import TENSORBOARD, Plan, ReplicaId
from drumline.run.event import Cause, Exit, ReplicaWaits
from drumline.run.state import Phase, ReplicaState, RunState
from drumline.run.success import counts
from drumline.words import count

_NOT_STARTED = (Phase.CREATED, Phase.PENDING, Phase.STARTING)


Late = tuple[ReplicaId, ...]


def wait_for(state: RunState, event: ReplicaWaits) -> tuple[RunState, Late, Cause | None]:
    """The same run, in which one waits for this, or for nothing in particular any more; as `missed`, if for ever."""
    name, standing = event.replica, state.standing(event.replica)
    if standing is None or standing.phase not in _NOT_STARTED or name == TENSORBOARD:
        return state, (), None
    now = standing.replace(reason=event.reason if event.message else "", waits=event.message)
    state = state.with_helper(name, now) if name.is_helper else state.with_replica(name, now)
    if not event.is_fatal or state.ending:
        return state, (), None
    if not counts(name):
        return state.with_warning(f"{name} cannot start: {event.message}"), (name,), None
    return state, (name,), Cause(name, state.attempt, Exit(message=event.message), "engine", "CannotStart")


def missed(plan: Plan, state: RunState) -> tuple[Late, Cause | None]:
    """Who has not started in time, and why that ends the attempt; None if it does not, since nobody of them counts."""
    late = tuple(name for name, each in state.replicas.items() if each.phase is Phase.STARTING)
    counting = [name for name in late if counts(name)]
    if not counting:
        return late, None
    told = [name for name in counting if state.replicas[name].waits]
    first = (told or counting)[0]
    words = f"did not start within {plan.timeouts.start_seconds:g} s"
    if waits := state.replicas[first].waits:
        words += f": {waits}"
        if len(counting) > 1:
            words += f"; nor did {count(len(counting) - 1, 'other')}"
    return late, Cause(first, state.attempt, Exit(message=words), "lost", "StartTimeout")


def describe_waits(state: RunState) -> str:
    """`worker.1: its image cannot be pulled`, `worker.0 and 2 others: …`; nothing if nobody has anything to say."""
    if state.ending or state.phase.is_final:
        return ""
    if state.phase is Phase.PENDING and state.waits:
        return state.waits
    waiting: dict[str, list[ReplicaId]] = {}
    for name, each in _waiting(state).items():
        waiting.setdefault(each.waits, []).append(name)
    return "; ".join(f"{_names(names)}: {words}" for words, names in waiting.items())


def _waiting(state: RunState) -> Mapping[ReplicaId, ReplicaState]:
    return {name: each for name, each in state.everyone.items() if each.waits and each.phase in _NOT_STARTED}


def _names(names: list[ReplicaId]) -> str:
    return str(names[0]) if len(names) == 1 else f"{names[0]} and {count(len(names) - 1, 'other')}"
