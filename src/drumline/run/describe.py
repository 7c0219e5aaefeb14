"""Describe the causes, restarts and waits of a run for users."""

from __future__ import annotations

from collections.abc import Mapping

from drumline.plan.types import ReplicaId
from drumline.run.decision import RestartChosen
from drumline.run.event import Cause
from drumline.run.failure import describe_end, describe_exit
from drumline.run.state import NOT_STARTED, Phase, ReplicaState, Revival, RunState
from drumline.words import count, listed


def describe_cause(cause: Cause) -> str:
    """Return `worker.1: killed by signal 9 (KILL)` or `worker.1: exit code 1, ValueError: bad row`."""
    words = describe_end(cause.exit, cause.said)
    return f"{cause.replica}: {words}" if cause.replica else words


def describe_restart(restart: RestartChosen, verdict: str) -> str:
    """Return `attempt 1 begins (restart 1 of 3): worker.1: exit code 1`."""
    return f"attempt {restart.attempt} begins (restart {restart.number} of {restart.budget}): {verdict}"


def describe_revival(revival: Revival) -> str:
    """Return `worker.1 rejoins (restart 1 of 3): killed by signal 9 (KILL)`."""
    cause, names = revival.cause, listed([str(each) for each in revival.replicas])
    words, restart = describe_exit(cause.exit), f"(restart {revival.number} of {revival.budget})"
    if len(revival.replicas) > 1:
        return (
            f"{names} restart from the checkpoint {restart}, since the variables on {cause.replica} are lost: {words}"
        )
    return f"{names} {'rejoins' if revival.replicas[0].role == 'worker' else 'restarts'} {restart}: {words}"


def describe_waits(state: RunState) -> str:
    """Return `worker.1: its image cannot be pulled` or `worker.0 and 2 others: …`; empty if no reason is known."""
    if state.ending or state.phase.is_final:
        return ""
    if state.phase is Phase.PENDING and state.waits:
        return state.waits
    waiting: dict[str, list[ReplicaId]] = {}
    for name, each in _waiting(state).items():
        waiting.setdefault(each.waits, []).append(name)
    return "; ".join(f"{_names(names)}: {words}" for words, names in waiting.items())


def _waiting(state: RunState) -> Mapping[ReplicaId, ReplicaState]:
    return {name: each for name, each in state.all_states.items() if each.waits and each.phase in NOT_STARTED}


def _names(names: list[ReplicaId]) -> str:
    return str(names[0]) if len(names) == 1 else f"{names[0]} and {count(len(names) - 1, 'other')}"
