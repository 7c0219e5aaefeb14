"""Whether, and after how long, the whole line starts again."""

from __future__ import annotations

from collections.abc import Mapping

from drumline.plan.types import Plan, Restart
from drumline.run.event import Exit
from drumline.run.failure import gave_up
from drumline.run.state import Phase, RunState

# Their mirrored workers catch TERM and train on, until a collective tells them that a peer has gone: without it none of
# them can save anything.
_CANNOT_SAVE_ALONE = ("tensorflow", "jax")
_TIME_TO_SAVE = ("preempted", "asked", "time")

# Not every script says what steps it takes. What has run for so long is given the benefit of the doubt.
OLD_SECONDS = 60.0


def may_restart(budgets: Restart, spent: Mapping[str, int], failure: str) -> bool:
    """Whether the budget for this class of failure has anything left; a class without a budget has none."""
    return spent.get(failure, 0) < budget_of(budgets, failure)


def budget_of(budgets: Restart, failure: str) -> int:
    """How often this class of failure is followed by a restart."""
    return int(getattr(budgets, failure, 0))


def is_permanent(budgets: Restart, exit_: Exit | None) -> bool:
    """Whether nothing starts again after such an end, whatever is left of a budget."""
    code = exit_ and (exit_.code if exit_.signal is None else 128 + exit_.signal)
    if not code:
        return False
    ranges = (each.partition("-") for each in budgets.permanent_codes)
    return any(int(first) <= code <= int(last or first) for first, _, last in ranges)


def could_be_early(plan: Plan) -> bool:
    """Whether it matters that user code fails before its first step; a plain command has no steps."""
    return plan.framework != "plain" and plan.restart.crash > plan.restart.early


def with_class(plan: Plan, state: RunState) -> RunState:
    """The same run, its failure charged to `early` if user code failed by itself and nobody had taken a step.

    An exit code that was said to be permanent has no budget.
    What fails before the first step would fail again: a wrong import, a wrong path, a wrong shape.
    """
    ending = state.ending
    cause = ending.cause if ending and ending.phase is Phase.FAILED else None
    if ending and cause and is_permanent(plan.restart, cause.exit):
        return state._replace(ending=ending._replace(cause=cause._replace(failure="permanent")))
    if not (ending and cause and cause.replica) or cause.failure != "crash" or plan.framework == "plain":
        return state
    if state.stepped or state.is_old or not (gave_up(cause.exit, plan.framework) or cause.said):
        return state
    if not may_restart(plan.restart, state.restarts, "early") and may_restart(plan.restart, state.restarts, "crash"):
        state = state.with_warning(
            f"not started again, since {cause.replica} fell before its first step;"
            f" `restart: {{early: {plan.restart.crash}}}` would"
        )
    return state._replace(ending=ending._replace(cause=cause._replace(failure="early")))


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
