"""Which replicas restart when one fails: the policy of each strategy.

Workers of a mirrored strategy restart together, as the next attempt: a new worker among old ones would wait forever.
In TensorFlow with a chief and parameter servers, replicas restart separately once a step was taken:

* worker: the chief continues without it, and uses it again after its restart.
* chief: it finds its workers and ps again, and restores its checkpoint.
* ps: its variables are lost, so all ps and the chief restart from the checkpoint. The workers restart too, since they
  would take seconds to connect to a ps again.

Before the first step every replica is needed, and a failure ends the attempt.
"""

from __future__ import annotations

from drumline.plan.types import Plan, ReplicaId
from drumline.run.action import Action, ChooseDelay, SetTimer, Stop
from drumline.run.event import Cause, ReplicaExited
from drumline.run.failure import describe_exit, failed_by_itself, failure_class, reason_of
from drumline.run.restart import budget_of, delay_before, is_permanent, may_restart
from drumline.run.state import Phase, Revival, RunState
from drumline.run.verdict import ended_state


def restarts_separately(plan: Plan) -> bool:
    """Return whether replicas of this plan may fail and restart one by one."""
    return (
        plan.framework == "tensorflow"
        and not plan.restarts_whole
        and plan.success == "chief"
        and bool(plan.replicas_of("ps"))
        and bool(plan.replicas_of("worker"))
    )


def forgive_exit(plan: Plan, state: RunState, event: ReplicaExited, *, may_return: bool) -> RunState | None:
    """Return the state after an exit that does not end the attempt; None if it ends the attempt.

    With `may_return` false, the exit is reported after the deciding exit: the replica is not restarted, and there is no
    warning.
    """
    if not (restarts_separately(plan) and state.stepped and state.phase is Phase.RUNNING):
        return None
    name, exit_ = event.replica, event.exit
    if is_permanent(plan.restart, exit_):
        return None
    failure = failure_class(exit_, plan.framework)
    if may_return and may_restart(plan.restart, state.restarts, failure):
        return _choose_revival(plan, state, event, failure)
    others = (other.id for other in plan.replicas_of("worker") if other.id != name)
    left = sum(not state.replicas[other].phase.is_final or other in state.reviving for other in others)
    if name.role != "worker" or not left:  # a chief without workers would wait forever
        return None
    state = state.with_replica(name, ended_state(event, Phase.FAILED, reason_of(exit_)))
    state = state.replace(forgiven=(*state.forgiven, name))
    if not may_return:
        return state
    workers = "one worker" if left == 1 else f"{left} workers"
    spent = f"its restart budget ({failure}: {budget_of(plan.restart, failure)}) is used up"
    warning = f"{name} failed ({describe_exit(exit_)}), and {spent}; the training continues with {workers}"
    return state.with_warning(warning)


def exit_of_stopped(plan: Plan, state: RunState, event: ReplicaExited) -> RunState | None:
    """Return the state after the exit of a replica that was stopped in order to restart; None for any other exit."""
    name = event.replica
    if name not in state.reviving:
        return None
    failed_at = max(each.at_seconds for each in state.revivals if name in each.replicas)
    if event.exit.seen and event.at_seconds < failed_at:
        return None
    by_itself = failed_by_itself(event.exit, plan.framework)
    how = (Phase.FAILED, "Consequence") if by_itself else (Phase.KILLED, "PeerFailed")
    return state.with_replica(name, ended_state(event, *how)).replace(forgiven=(*state.forgiven, name))


def pending_restarts(plan: Plan, state: RunState) -> tuple[Action, ...]:
    """Return the actions that must be under way for replicas that restart separately."""
    if state.reviving:
        return tuple(stop_and_delay(plan, state))
    return (set_return_timer(plan, state),) if state.waiting and state.revivals else ()


def set_return_timer(plan: Plan, state: RunState) -> Action:
    """Return the timer that limits the time in which restarted replicas have to start."""
    return SetTimer(f"return {len(state.revivals)}", state.attempt, plan.timeouts.start_seconds)


def delay_return(plan: Plan, state: RunState) -> Action:
    """Return the action that chooses the delay before replicas restart, or the timer of a delay that is chosen."""
    if state.delay_seconds is None:
        return ChooseDelay(state.attempt, delay_before(plan.restart, sum(state.restarts.values()) - 1))
    return SetTimer(f"hold {len(state.revivals)}", state.attempt, state.delay_seconds)


def restart_unit(plan: Plan, name: ReplicaId) -> tuple[ReplicaId, ...]:
    """Return this replica and the replicas that have to restart with it, where replicas restart separately."""
    return tuple(each.id for each in plan.replicas_of("chief", "worker", "ps")) if name.role == "ps" else (name,)


def _choose_revival(plan: Plan, state: RunState, event: ReplicaExited, failure: str) -> RunState:
    name, reason = event.replica, "LeftEarly" if event.exit.ok else reason_of(event.exit)
    number = state.restarts.get(failure, 0) + 1
    cause = Cause(name, state.attempt, event.exit, failure, reason)
    revival = Revival(restart_unit(plan, name), cause, number, budget_of(plan.restart, failure), event.at_seconds)
    return state.with_replica(name, ended_state(event, Phase.FAILED, reason)).replace(
        reviving=tuple(dict.fromkeys((*state.reviving, *revival.replicas))),
        revivals=(*state.revivals, revival),
        forgiven=(*state.forgiven, name),
        holding=delay_before(plan.restart, sum(state.restarts.values())) > 0,
        delay_seconds=None,
        restarts={**state.restarts, failure: number},
    )


def stop_and_delay(plan: Plan, state: RunState) -> list[Action]:
    """Return the actions that stop the replicas to be restarted, and wait for the delay."""
    left = state.current(name for name in state.reviving if not state.replicas[name].phase.is_final)
    actions: list[Action] = [Stop(left, plan.timeouts.grace_seconds)] if left else []
    return [*actions, delay_return(plan, state)] if state.holding else actions
