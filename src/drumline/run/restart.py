"""Whether, and after how long, the whole line starts again."""

from __future__ import annotations

from collections.abc import Mapping

from drumline.plan.types import Restart


def may_restart(budgets: Restart, spent: Mapping[str, int], failure: str) -> bool:
    """Whether the budget for this class of failure has anything left; a class without a budget has none."""
    return spent.get(failure, 0) < int(getattr(budgets, failure, 0))


def delay_before(budgets: Restart, restarts: int) -> float:
    """About how long to wait before the restart after so many; the first has no delay."""
    if restarts == 0:
        return 0.0
    delay = budgets.backoff_initial_seconds * budgets.backoff_factor ** min(restarts - 1, 64)
    return min(delay, budgets.backoff_maximum_seconds)
