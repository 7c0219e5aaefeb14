"""Whether, and after how long, the whole line starts again."""

from __future__ import annotations

from collections.abc import Mapping

from drumline.plan.types import Plan, Restart
from drumline.run.describe import describe_cause
from drumline.run.event import Cause, CauseNamed, Exit
from drumline.run.failure import failed_by_itself
from drumline.run.reconsider import first_report
from drumline.run.state import Phase, RunState

# Workers of these frameworks catch TERM and go on until a collective fails. Saving is a collective as well, so that
# none of them can save after a peer has failed. A process of torch ends at TERM, unless its script handles it.
_CANNOT_SAVE_ALONE = ("tensorflow", "jax")
_CLASSES_WITH_GRACE = ("preempted", "asked", "time")

# The first replica to end may only report that a peer is gone. So long after TERM the peer may end by itself, and say
# why, before it is killed.
REPORT_SECONDS = 1.0

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


def with_failure_class(plan: Plan, state: RunState) -> RunState:
    """The same run, its failure charged to `early` if user code failed by itself and nobody had taken a step.

    An exit code that was said to be permanent has no budget.
    What fails before the first step would fail again: a wrong import, a wrong path, a wrong shape.
    """
    ending = state.ending
    cause = ending.cause if ending and ending.phase is Phase.FAILED else None
    if ending and cause and is_permanent(plan.restart, cause.exit):
        return state.replace(ending=ending.replace(cause=cause.replace(failure="permanent")))
    if not (ending and cause and cause.replica) or cause.failure != "crash" or plan.framework == "plain":
        return state
    if state.stepped or state.is_old or not (failed_by_itself(cause.exit, plan.framework) or cause.said):
        return state
    if not may_restart(plan.restart, state.restarts, "early") and may_restart(plan.restart, state.restarts, "crash"):
        state = state.with_warning(
            f"not started again, since {cause.replica} fell before its first step;"
            f" `restart: {{early: {plan.restart.crash}}}` would"
        )
    return state.replace(ending=ending.replace(cause=cause.replace(failure="early")))


def delay_before(budgets: Restart, restarts: int) -> float:
    """About how long to wait before the restart after so many; the first has no delay."""
    if restarts == 0:
        return 0.0
    delay = budgets.backoff_initial_seconds * budgets.backoff_factor ** min(restarts - 1, 64)
    return min(delay, budgets.backoff_maximum_seconds)


def grace_before_kill(plan: Plan, state: RunState) -> float:
    """Return the seconds between TERM and KILL for the replicas that are left; 0 is KILL at once.

    Replicas that cannot save without the failed one get no grace, unless the spec sets one. While it is not known which
    replica failed first, they get time to say more: little if a connection is gone, all of it if a peer is silent.
    """
    if state.forced:
        return 0.0
    grace_seconds = plan.timeouts.grace_seconds
    cause = state.ending.cause if state.ending and state.ending.phase is Phase.FAILED else None
    if cause is None or cause.replica is None or cause.replica.is_helper:
        return grace_seconds
    if cause.failure in _CLASSES_WITH_GRACE or state.out_of_time:
        return grace_seconds
    if plan.framework not in _CANNOT_SAVE_ALONE or plan.replicas_of("ps") or plan.timeouts.is_grace_set:
        return grace_seconds
    report = first_report(state)
    if not report or may_restart(plan.restart, state.restarts, cause.failure):
        return 0.0
    return min(grace_seconds, REPORT_SECONDS) if report == "gone" else grace_seconds


def name_cause(plan: Plan, state: RunState) -> CauseNamed | None:
    """Return what is to be recorded of the cause of a run that fails for good; None if nothing is, or it was.

    There is one correction at most: it waits for the end of the attempt, until which there may be more evidence.
    """
    cause = final_cause(plan, state)
    if cause is None or (state.named and (state.phase is not Phase.FAILED or len(state.named) > 1)):
        return None
    if state.named and (state.named[0].replica, state.named[0].reason) == (cause.replica, cause.reason):
        return None
    return CauseNamed(state.attempt, cause, describe_cause(cause), is_correction=bool(state.named))


def final_cause(plan: Plan, state: RunState) -> Cause | None:
    """Return the cause of a run that fails for good, as soon as it is known: before the other replicas have ended.

    None while the run goes on, if another attempt follows, and while the first end only reports on a peer.
    """
    if state.ending is None or state.ending.phase is not Phase.FAILED or state.stacks_due:
        return None
    if state.phase is Phase.FAILED:
        return state.ending.cause
    ending = with_failure_class(plan, state).ending
    cause = ending.cause if ending else None
    if cause is None or first_report(state):
        return None
    return cause if state.out_of_time or not may_restart(plan.restart, state.restarts, cause.failure) else None
