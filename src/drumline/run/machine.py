"""The machine: what an event makes of a run, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from drumline.plan.types import TENSORBOARD, Plan, ReplicaId
from drumline.run.action import Action, Finish, Start
from drumline.run.decide import decide, decide_again
from drumline.run.event import (
    AttemptDelayed,
    AttemptPlaced,
    Cause,
    CauseNamed,
    DelayChosen,
    EngineFailed,
    EngineWarned,
    Event,
    Exit,
    FirstStepTaken,
    LineHung,
    ProjectCarried,
    RendezvousFailed,
    ReplicaExited,
    ReplicaStarted,
    ReplicaWaits,
    ResumeRequested,
    RoomFound,
    RunAccepted,
    StacksTaken,
    StepsResumed,
    StepsStalled,
    StopRequested,
    SummariesFound,
    SupervisorReturned,
    TensorBoardServed,
    TimerFired,
)
from drumline.run.failure import reason_of
from drumline.run.hang import blame, give_up
from drumline.run.pending import expect_start, grow_old, limit, linger, pending, prepare, ps_wait, stop, wait
from drumline.run.restart import delay_before, may_restart, with_class
from drumline.run.resume import PREEMPTED, may_resume, resumed
from drumline.run.state import Ending, Phase, ReplicaState, RunState, is_past
from drumline.run.success import may_linger
from drumline.run.tensorboard import show, show_no_more
from drumline.run.unit import carry_on, hold
from drumline.run.verdict import came_before, ended, ending_when_asked, judge
from drumline.run.waiting import missed, wait_for
from drumline.run.weigh import weigh

Step = tuple[RunState, tuple[Action, ...]]


def step(plan: Plan, state: RunState, event: Event) -> Step:
    """Return the state after an event and what to do now; what a past attempt does late changes nothing."""
    if isinstance(event, SupervisorReturned) and state.phase is not Phase.CREATED:
        return state, tuple(pending(plan, state))
    if isinstance(event, ResumeRequested) and may_resume(state):
        return _accepted(plan, resumed(state))
    if isinstance(event, CauseNamed):  # also of a run that is over: its last end may be what names another cause
        return state.replace(named=(*state.named, event.cause)) if event.attempt == state.attempt else state, ()
    if state.phase.is_final or is_past(state, event):
        return state, ()
    match event:
        case RunAccepted() | SupervisorReturned():
            return _accepted(plan, state)
        case AttemptPlaced():
            return _placed(plan, state)
        case AttemptDelayed():
            return _delayed(plan, state, event), ()
        case RoomFound():
            return state, (Start(state.attempt),) if state.phase is Phase.PENDING and not state.ending else ()
        case ReplicaStarted() if event.replica.is_helper:
            return state.with_helper(event.replica, ReplicaState(Phase.RUNNING, event.incarnation)), ()
        case ReplicaWaits():
            return _not_started(plan, *wait_for(state, event))
        case ReplicaExited() if event.replica == TENSORBOARD:
            state = show_no_more(plan, state, event)
            return (state, ()) if state.ending is None or state.anyone_left else _wind_up(plan, state)
        case ReplicaExited() if event.replica.is_helper:
            return _helper_exited(plan, state, event)
        case ReplicaStarted():
            return _started(plan, state, event)
        case ReplicaExited():
            return _exited(plan, state, event)
        case FirstStepTaken():
            return state if state.ending else state.replace(stepped=True), ()  # what is decided stays so
        case LineHung() | RendezvousFailed():
            return give_up(state, event)
        case StacksTaken():
            return _wind_up(plan, blame(plan, state, event)) if state.stacks_due else (state, ())
        case StepsStalled():
            return state if state.ending else state.replace(stalled=event), ()
        case StepsResumed():
            return state.replace(stalled=None), ()
        case StopRequested():
            return _asked_to_stop(plan, state, event)
        case TimerFired():
            return _time_over(plan, state, event)
        case DelayChosen():
            return _delay_chosen(plan, state, event)
        case EngineFailed():
            return _engine_failed(plan, state, event)
        case EngineWarned():
            return state.with_warning(event.message), ()
        case ProjectCarried():
            return state, ()
        case SummariesFound():
            return show(state) if plan.tensorboard is None else (state, ())
        case TensorBoardServed():
            return state.replace(tensorboard_address=event.address), ()
        case ResumeRequested():
            return state, ()  # it goes on already
        case _:
            assert_never(event)


def fold(plan: Plan, events: Iterable[Event]) -> RunState:
    """The state that a list of events leads to."""
    state = RunState()
    for event in events:
        state, _ = step(plan, state, event)
    return state


def _accepted(plan: Plan, state: RunState) -> Step:
    if state.phase is not Phase.CREATED:
        return state, ()
    if plan.helpers:
        helpers = dict.fromkeys(plan.helpers, ReplicaState(incarnation=state.resumes))
        state = _all(plan, state.replace(phase=Phase.BUILDING, helpers=helpers), ReplicaState(Phase.CREATED))
        actions = prepare(state)
    else:
        state, actions = _begin(plan, state)
    return state, (*actions, *limit(plan))


def _helper_exited(plan: Plan, state: RunState, event: ReplicaExited) -> Step:
    if state.ending:
        state = state.with_helper(event.replica, judge(state.ending, event))
        return (state, ()) if state.anyone_helps else _wind_up(plan, state)
    if event.exit.ok:
        state = state.with_helper(event.replica, ended(event, Phase.FINISHED))
        return (state, prepare(state)) if state.anyone_helps else _begin(plan, state)
    state = state.with_helper(event.replica, ended(event, Phase.FAILED, reason_of(event.exit)))
    what, reason = ("build", "NotBuilt") if event.replica.role == "build" else ("prepare", "NotPrepared")
    return _fail(plan, state, Cause(event.replica, state.attempt, event.exit, what, reason))


def _begin(plan: Plan, state: RunState) -> Step:
    return _all(plan, state.replace(phase=Phase.PENDING), ReplicaState()), (Start(state.attempt),)


def _placed(plan: Plan, state: RunState) -> Step:
    if state.phase is not Phase.PENDING:
        return state, ()
    starting = ReplicaState(Phase.STARTING)
    replicas = {name: starting if each.phase is Phase.PENDING else each for name, each in state.replicas.items()}
    state = state.replace(phase=Phase.STARTING, replicas=replicas, waits="")
    return state, () if state.ending else (expect_start(plan, state),)


def _delayed(plan: Plan, state: RunState, event: AttemptDelayed) -> RunState:
    """Wait; also after a placement that nobody came to use before its supervisor was killed."""
    if state.ending or state.phase not in (Phase.PENDING, Phase.STARTING):
        return state
    return _all(plan, state.replace(phase=Phase.PENDING, waits=event.message), ReplicaState())


def _started(plan: Plan, state: RunState, event: ReplicaStarted) -> Step:
    running = ReplicaState(Phase.RUNNING, event.incarnation)
    return _go_on(plan, state.with_replica(event.replica, running))


def _go_on(plan: Plan, state: RunState) -> Step:
    """RUNNING, once nobody is waited for any more."""
    if state.ending or state.waiting:
        return state, ()
    if state.phase is Phase.RUNNING:
        return state, ()
    state = state.replace(phase=Phase.RUNNING)
    old = grow_old(plan, state)
    state, orders = show(state) if plan.tensorboard else (state, ())
    return state, (*orders, *old)


def _exited(plan: Plan, before: RunState, event: ReplicaExited) -> Step:
    if came_before(event, before):
        state = decide_again(plan, before, event)
    elif before.ending:
        state = before.with_replica(event.replica, judge(before.ending, event))
    else:
        state = decide(plan, before, event)
    if state.ending is None:
        state, returning = carry_on(plan, before, state)
        state, orders = _go_on(plan, state)
        return state, (*returning, *orders)
    state = state.replace(lingering=state.lingering and _anyone_lingers(plan, state))
    unchanged = (state.ending, state.lingering, ps_wait(state)) == (before.ending, before.lingering, ps_wait(before))
    if state.anyone_left and unchanged:
        return state, ()
    return (state, (linger(plan, state),)) if state.lingering else _wind_up(plan, state)


def _anyone_lingers(plan: Plan, state: RunState) -> bool:
    return any(count and may_linger(plan, role) for role, count in state.left.items())


def _asked_to_stop(plan: Plan, state: RunState, event: StopRequested) -> Step:
    state = state.replace(forced=state.forced or event.force, stacks_due=False)
    reason = PREEMPTED if event.preempted else "Asked"
    return _end(plan, state, ending_when_asked(state.ending, event.at_seconds, reason))


def _time_over(plan: Plan, state: RunState, event: TimerFired) -> Step:
    match event.timer:
        case "delay" if state.phase is Phase.RESTARTING and state.ending is None:
            return _begin(plan, state)
        case "linger" if state.lingering:
            return _wind_up(plan, state)
        case "start" if state.phase is Phase.STARTING and state.ending is None:
            return _not_started(plan, state, *missed(plan, state))
        case timer if state.ending is None and timer == f"return {len(state.revivals)}" and state.waiting:
            return _not_started(plan, state, *missed(plan, state))
        case timer if state.ending is None and timer == f"hold {len(state.revivals)}" and state.holding:
            return carry_on(plan, state, state.replace(holding=False))
        case "old":
            return state.replace(is_old=True), ()
        case "run" if plan.timeouts.run_seconds is not None:
            state = state.replace(out_of_time=True)  # even if it comes while an attempt is being stopped
            if state.ending is None:
                exit_ = Exit(message=f"the run's time limit of {plan.timeouts.run_seconds:g} s is over")
                return _fail(plan, state, Cause(None, state.attempt, exit_, "time", "TimeLimit"))
    return state, ()


def _not_started(plan: Plan, state: RunState, late: tuple[ReplicaId, ...], cause: Cause | None) -> Step:
    if cause:
        return _fail(plan, state, cause)
    return state, (stop(plan, state).replace(replicas=late),) if late else ()


def _delay_chosen(plan: Plan, state: RunState, event: DelayChosen) -> Step:
    if state.ending or state.delay_seconds is not None or not (state.holding or state.phase is Phase.RESTARTING):
        return state, ()
    state = state.replace(delay_seconds=event.seconds)
    return state, (hold(plan, state) if state.holding else wait(plan, state),)


def _engine_failed(plan: Plan, state: RunState, event: EngineFailed) -> Step:
    if state.ending is not None:
        return state, ()
    cause = Cause(None, state.attempt, Exit(message=event.message), "engine", "EngineFailed")
    return _fail(plan, state, cause)


def _fail(plan: Plan, state: RunState, cause: Cause) -> Step:
    return _end(plan, state, Ending(Phase.FAILED, cause.reason, cause))


def _end(plan: Plan, state: RunState, ending: Ending) -> Step:
    """Decide what the run, or this attempt of it, comes to, and stop whoever is left."""
    # Nobody has begun; of a line that is PENDING only the engine knows.
    if state.phase in (Phase.CREATED, Phase.BUILDING, Phase.RESTARTING):
        state = _all(plan, state, ReplicaState(Phase.KILLED, reason=ending.reason))
    return _wind_up(plan, state.replace(ending=ending))


def _wind_up(plan: Plan, state: RunState) -> Step:
    """Stop whoever is left; when nobody is, the attempt is over, and perhaps the run."""
    state = state.replace(lingering=False)
    if state.anyone_left or state.stacks_due:
        return state, () if state.stacks_due else (stop(plan, state),)
    state = with_class(plan, weigh(plan, state))
    ending = state.ending
    if ending is None:
        raise AssertionError("a run ends only after it was decided how")
    cause = ending.cause if ending.phase is Phase.FAILED and not state.out_of_time else None
    if cause and may_restart(plan.restart, state.restarts, cause.failure):
        return _restart(plan, state, cause)
    if state.shows:
        return state, (stop(plan, state),)
    return state.replace(phase=ending.phase), (Finish(ending),)


def _restart(plan: Plan, state: RunState, cause: Cause) -> Step:
    about_seconds = delay_before(plan.restart, sum(state.restarts.values()))
    state = _all(plan, state, ReplicaState()).replace(
        phase=Phase.RESTARTING,
        attempt=state.attempt + 1,
        ending=None,
        causes=(*state.causes, cause),
        named=(),
        restarts={**state.restarts, cause.failure: state.restarts.get(cause.failure, 0) + 1},
        delay_seconds=None,
        reviving=(),
        holding=False,
        forgiven=(),
        stepped=False,
        stalled=None,
        is_old=False,
    )
    return _begin(plan, state) if about_seconds == 0 else (state, (wait(plan, state),))


def _all(plan: Plan, state: RunState, replica: ReplicaState) -> RunState:
    return state.with_replicas({each.id: replica for each in plan.replicas})
