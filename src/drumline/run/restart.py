"""Restarts of the whole gang: budgets, delays, and the grace before them."""

from __future__ import annotations

from collections.abc import Mapping

from drumline.plan.types import Plan, Restart
from drumline.run.describe import describe_cause
from drumline.run.event import Cause, CauseNamed, Exit
from drumline.run.failure import failed_by_itself
from drumline.run.reconsider import first_report
from drumline.run.state import Phase, RunState

# Workers of these frameworks catch TERM and continue until a collective fails. Saving is a collective as well, so none
# of them can save after a peer has failed. A process of torch ends on TERM, unless its script handles the signal.
_CANNOT_SAVE_ALONE = ("tensorflow", "jax")
_CLASSES_WITH_GRACE = ("preempted", "asked", "time")

# The first replica to end may only report that a peer is gone. The time after TERM in which the peer may end by itself
# and print its error, before it is killed.
REPORT_SECONDS = 1.0

# Not every script reports its steps. After this time an attempt counts as having taken a step.
OLD_SECONDS = 60.0


def may_restart(budgets: Restart, spent: Mapping[str, int], failure: str) -> bool:
    """Return whether the budget of this failure class has restarts left; a class without a budget has none."""
    return spent.get(failure, 0) < budget_of(budgets, failure)


def budget_of(budgets: Restart, failure: str) -> int:
    """Return the number of restarts for this failure class."""
    return int(getattr(budgets, failure, 0))


def is_permanent(budgets: Restart, exit_: Exit | None) -> bool:
    """Return whether the spec forbids a restart after this exit, whatever the budgets."""
    code = exit_ and (exit_.code if exit_.signal is None else 128 + exit_.signal)
    if not code:
        return False
    ranges = (each.partition("-") for each in budgets.permanent_codes)
    return any(int(first) <= code <= int(last or first) for first, _, last in ranges)


def could_be_early(plan: Plan) -> bool:
    """Return whether failures before the first step have a smaller budget; a plain command has no steps."""
    return plan.framework != "plain" and plan.restart.crash > plan.restart.early


def with_failure_class(plan: Plan, state: RunState) -> RunState:
    """Return the state with the failure class `early` if user code failed by itself before the first step.

    Such a failure would occur again: a wrong import, a wrong path, a wrong shape. An exit code that the spec lists as
    permanent gets the class `permanent`, which has no budget.
    """
    ending = state.ending
    cause = ending.cause if ending and ending.phase is Phase.FAILED else None
    if ending and cause and is_permanent(plan.restart, cause.exit):
        return state.replace(ending=ending.replace(cause=cause.replace(failure="permanent")))
    if not (ending and cause and cause.replica) or cause.failure != "crash" or plan.framework == "plain":
        return state
    if state.stepped or state.may_have_stepped or not (failed_by_itself(cause.exit, plan.framework) or cause.said):
        return state
    if not may_restart(plan.restart, state.restarts, "early") and may_restart(plan.restart, state.restarts, "crash"):
        state = state.with_warning(
            f"no restart, since {cause.replica} failed before its first step;"
            f" `restart: {{early: {plan.restart.crash}}}` allows it"
        )
    return state.replace(ending=ending.replace(cause=cause.replace(failure="early")))


def delay_before(budgets: Restart, restarts: int) -> float:
    """Return the approximate delay in seconds before the next restart; the first restart has no delay."""
    if restarts == 0:
        return 0.0
    delay = budgets.backoff_initial_seconds * budgets.backoff_factor ** min(restarts - 1, 64)
    return min(delay, budgets.backoff_maximum_seconds)


def grace_before_kill(plan: Plan, state: RunState) -> float:
    """Return the seconds between TERM and KILL for the remaining replicas; 0 means KILL at once.

    Replicas that cannot save without the failed one get no grace, unless the spec sets one. While it is not known which
    replica failed first, they get time to print their errors: at most one second if a peer is gone, the whole grace if
    a peer is silent or absent.
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
    """Return the event that records the cause of a run that fails for good; None if there is nothing to record.

    A cause is recorded once. There is at most one correction, at the end of the attempt, when all evidence is known.
    """
    cause = final_cause(plan, state)
    if cause is None or (state.named and (state.phase is not Phase.FAILED or len(state.named) > 1)):
        return None
    if state.named and (state.named[0].replica, state.named[0].reason) == (cause.replica, cause.reason):
        return None
    return CauseNamed(state.attempt, cause, describe_cause(cause), is_correction=bool(state.named))


def final_cause(plan: Plan, state: RunState) -> Cause | None:
    """Return the cause of a run that fails for good, as soon as it is known: before the other replicas have ended.

    Return None while the run continues, if another attempt follows, and while the first exit only reports a peer.
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
