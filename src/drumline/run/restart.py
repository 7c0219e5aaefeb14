"""Whether, and after how long, the whole line starts again."""

from __future__ import annotations

from collections.abc import Mapping

from drumline.plan.types import Plan, Restart
from drumline.run.state import Phase, RunState

# Their mirrored workers catch TERM and train on, until a collective tells them that a peer has gone: without it none of
# them can save anything.
_CANNOT_SAVE_ALONE = ("tensorflow", "jax")
_TIME_TO_SAVE = ("preempted", "asked", "time")


def may_restart(budgets: Restart, spent: Mapping[str, int], failure: str) -> bool:
    """Whether the budget for this class of failure has anything left; a class without a budget has none."""
    return spent.get(failure, 0) < budget_of(budgets, failure)


def budget_of(budgets: Restart, failure: str) -> int:
    """How often this class of failure is followed by a restart."""
    return int(getattr(budgets, failure, 0))


def delay_before(budgets: Restart, restarts: int) -> float:
    """About how long to wait before the restart after so many; the first has no delay."""
    if restarts == 0:
        return 0.0
    delay = budgets.backoff_initial_seconds * budgets.backoff_factor ** min(restarts - 1, 64)
    return min(delay, budgets.backoff_maximum_seconds)


def grace_before_kill(plan: Plan, state: RunState) -> float:
    """How long whoever is to stop is given: none where nobody could use it and the next attempt waits for it."""
    if state.forced:
        return 0.0
    cause = state.ending.cause if state.ending and state.ending.phase is Phase.FAILED else None
    if cause and plan.framework in _CANNOT_SAVE_ALONE and not plan.replicas_of("ps"):
        fell = cause.replica is not None and cause.failure not in _TIME_TO_SAVE
        if fell and not state.out_of_time and may_restart(plan.restart, state.restarts, cause.failure):
            return 0.0
    return plan.timeouts.grace_seconds
