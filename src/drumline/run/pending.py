"""The actions that must be under way in each state of a run."""

from __future__ import annotations

from collections.abc import Iterator

from drumline.plan.types import COMPUTING, TENSORBOARD, Plan
from drumline.run.action import Action, ChooseDelay, Finish, Prepare, Serve, SetTimer, Start, Stop
from drumline.run.hang import take_stacks
from drumline.run.incarnation import Incarnation
from drumline.run.restart import OLD_SECONDS, could_be_early, delay_before, grace_before_kill
from drumline.run.restart_unit import pending_restarts
from drumline.run.state import Phase, RunState


def pending_actions(plan: Plan, state: RunState) -> Iterator[Action]:
    """Yield all actions that must be under way; a new supervisor performs them again."""
    ending = state.ending
    if ending and state.phase.is_final:
        yield Finish(ending)
        return
    if state.stacks_due:
        yield take_stacks(state)
    elif ending and not state.lingering:
        yield stop_remaining(plan, state)
    elif state.phase is Phase.BUILDING:
        yield from prepare_next(state)
    elif state.phase is Phase.RESTARTING:
        yield delay_restart(plan, state)
    else:
        yield Start(state.attempt, state.incarnations)  # a replica that runs is only watched, not started again
    if state.lingering:
        yield set_linger_timer(plan, state)
    elif state.phase is Phase.STARTING and ending is None:
        yield set_start_timer(plan, state)
    elif state.phase is Phase.RUNNING and ending is None:
        yield from pending_restarts(plan, state)
        yield from set_old_timer(plan, state)
    if ending is None or ending.phase is Phase.FAILED:
        yield from set_run_timer(plan)
        if state.serves_tensorboard and (ending is None or state.any_left):  # another attempt may follow
            yield Serve(state.resumes)


def stop_remaining(plan: Plan, state: RunState) -> Stop:
    """Return the action that stops all replicas that may have a process, except ps that have to be stopped last.

    Helpers are stopped if one of them runs, and TensorBoard if no replica and no helper is left.
    """
    grace_seconds = 0.0 if state.forced else plan.timeouts.grace_seconds
    if not state.any_left:  # TensorBoard is stopped last
        return Stop((Incarnation(TENSORBOARD, 0, state.resumes),), grace_seconds)
    helping = [name for name, each in state.helpers.items() if not each.phase.is_final]
    if helping:  # helpers run before the first attempt, and belong to no attempt
        return Stop(tuple(Incarnation(name, 0, state.resumes) for name in helping), grace_seconds)
    ps_last = ps_stop_last(state)
    left = (
        name for name, each in state.replicas.items() if not each.phase.is_final and not (ps_last and name.role == "ps")
    )
    return Stop(state.current(left), grace_before_kill(plan, state))


def ps_stop_last(state: RunState) -> bool:
    """Return whether the ps have to run on for now: after a success, chief and workers may still be writing to them."""
    succeeded = state.ending is not None and state.ending.phase is Phase.FINISHED
    stopping = succeeded and not state.lingering and not state.forced
    return stopping and any(state.left.get(role) for role in COMPUTING)


def prepare_next(state: RunState) -> tuple[Action, ...]:
    """Return the action that starts the next helper, or nothing if none is left.

    Helpers run one after the other, since one may use the data of an earlier one.
    """
    waiting = (name for name, helper in state.helpers.items() if not helper.phase.is_final)
    return tuple(Prepare(name, state.resumes) for name in waiting)[:1]


def set_linger_timer(plan: Plan, state: RunState) -> Action:
    """Return the timer that limits the time in which the remaining replicas may end by themselves."""
    return SetTimer("linger", state.attempt, plan.timeouts.grace_seconds)


def set_start_timer(plan: Plan, state: RunState) -> Action:
    """Return the timer that limits the time in which all replicas have to start."""
    return SetTimer("start", state.attempt, plan.timeouts.start_seconds)


def set_old_timer(plan: Plan, state: RunState) -> tuple[Action, ...]:
    """Return the timer after which an attempt counts as having taken a step, if a restart budget depends on that."""
    matters = could_be_early(plan) and not (state.stepped or state.may_have_stepped)
    return (SetTimer("old", state.attempt, OLD_SECONDS),) if matters else ()


def set_run_timer(plan: Plan) -> tuple[Action, ...]:
    """Return the timer of the run's time limit, if the run has one."""
    seconds = plan.timeouts.run_seconds
    return () if seconds is None else (SetTimer("run", 0, seconds),)


def delay_restart(plan: Plan, state: RunState) -> Action:
    """Return the action that chooses the delay before the next attempt, or the timer of a delay that is chosen."""
    if state.delay_seconds is None:
        return ChooseDelay(state.attempt, delay_before(plan.restart, sum(state.restarts.values()) - 1))
    return SetTimer("delay", state.attempt, state.delay_seconds)
