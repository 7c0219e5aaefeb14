"""The state machine: it makes the decisions about an event, and orders the resulting actions."""

from __future__ import annotations

from typing import assert_never

from drumline.plan.types import TENSORBOARD, Plan, ReplicaId
from drumline.record import Record
from drumline.run import decision as decisions
from drumline.run import event as events
from drumline.run.action import Action, Finish, Serve, Start
from drumline.run.decide import decide_exit, decide_late_exit
from drumline.run.decision import Decision
from drumline.run.difference import decisions_between
from drumline.run.event import Cause, Event, Exit
from drumline.run.failure import reason_of
from drumline.run.fold import fold
from drumline.run.hang import add_diagnosis, fail_attempt, take_stacks
from drumline.run.pending import (
    delay_restart,
    pending_actions,
    prepare_next,
    ps_stop_last,
    set_linger_timer,
    set_old_timer,
    set_run_timer,
    set_start_timer,
    stop_remaining,
)
from drumline.run.reconsider import reconsider_cause
from drumline.run.restart import budget_of, delay_before, may_restart, with_failure_class
from drumline.run.restart_unit import delay_return, set_return_timer, stop_and_delay
from drumline.run.resume import PREEMPTED, may_resume
from drumline.run.state import Ending, Phase, ReplicaState, RunState, is_past
from drumline.run.success import may_linger
from drumline.run.tensorboard import may_serve, tensorboard_exited
from drumline.run.verdict import ended_before_decision, ended_state, ending_on_request, judge_exit
from drumline.run.waiting import cannot_start, start_timed_out

# In these phases no replica of the attempt has a process. PENDING is missing: the engine may already start some then.
_NO_PROCESS = (Phase.CREATED, Phase.BUILDING, Phase.RESTARTING)


class Transition(Record):
    """The state after an event and its decisions, and the actions to perform."""

    state: RunState
    decisions: tuple[Decision, ...]
    actions: tuple[Action, ...]


def transition(plan: Plan, state: RunState, event: Event) -> Transition:
    """Return the decisions about an event, and the actions; none for an event of a past attempt or incarnation."""
    case = _Case(plan, state, event)
    _react(case, event)
    return Transition(case.state, tuple(case.decisions), tuple(case.actions))


class _Case:
    """A transition in progress: the state before the event, the state with the decisions so far, and the actions."""

    def __init__(self, plan: Plan, before: RunState, event: Event) -> None:
        self.plan = plan
        self.before = before
        self.state = fold(before, event)
        self.decisions: list[Decision] = []
        self.actions: list[Action] = []

    def decide(self, *decided: Decision) -> None:
        self.decisions += decided
        self.state = fold(self.state, *decided)

    def judge(self, judged: RunState, replica: ReplicaId | None = None) -> None:
        """Add the decisions that lead to the state `judged`; with `replica`, only that replica is compared."""
        self.decide(*decisions_between(self.state, judged, replica))

    def act(self, *actions: Action) -> None:
        self.actions += actions


def _react(case: _Case, event: Event) -> None:
    plan, before = case.plan, case.before
    if isinstance(event, events.SupervisorReturned) and before.phase is not Phase.CREATED:
        case.act(*pending_actions(plan, before))
        return
    if isinstance(event, events.ResumeRequested) and may_resume(before):
        _accept(case)
        return
    if before.phase.is_final or is_past(before, event):
        return
    match event:
        case events.RunAccepted() | events.SupervisorReturned():
            if before.phase is Phase.CREATED:
                _accept(case)
        case events.AttemptPlaced():
            if before.phase is Phase.PENDING and not before.ending:
                case.act(set_start_timer(plan, case.state))
        case events.RoomFound():
            if before.phase is Phase.PENDING and not before.ending:
                case.act(Start(before.attempt))
        case events.ReplicaStarted() | events.ReplicaWaits() | events.ReplicaExited():
            _react_to_replica(case, event)
        case events.GangHung() | events.RendezvousFailed():
            if before.ending is None and before.phase in (Phase.STARTING, Phase.RUNNING):
                case.judge(fail_attempt(before, event))
                case.act(take_stacks(case.state))
        case events.StacksTaken():
            if before.stacks_due:
                case.judge(add_diagnosis(plan, case.state, event))
                _end_attempt(case)
        case events.StopRequested():
            reason = PREEMPTED if event.preempted else "Asked"
            _end(case, ending_on_request(before.ending, event.at_seconds, reason))
        case events.TimerFired():
            _timer_fired(case, event)
        case events.DelayChosen():
            if case.state.delay_seconds != before.delay_seconds:
                case.act(delay_return(plan, case.state) if case.state.holding else delay_restart(plan, case.state))
        case events.EngineFailed():
            if before.ending is None:
                _fail(case, Cause(None, before.attempt, Exit(message=event.message), "engine", "EngineFailed"))
        case events.SummariesFound():
            if plan.tensorboard is None:
                _serve_tensorboard(case)
        case events.AttemptDelayed() | events.CauseNamed() | events.EngineWarned() | events.FirstStepTaken():
            pass
        case events.ProjectCarried() | events.ResumeRequested() | events.TensorBoardServed():
            pass
        case events.StepsResumed() | events.StepsStalled():
            pass
        case _:
            assert_never(event)


def _react_to_replica(case: _Case, event: events.ReplicaStarted | events.ReplicaWaits | events.ReplicaExited) -> None:
    match event:
        case events.ReplicaStarted():
            if not event.replica.is_helper:
                _check_started(case)
        case events.ReplicaWaits():
            late, cause = cannot_start(case.before, event)
            if late and cause is None:
                case.decide(decisions.RunWarned(f"{event.replica} cannot start: {event.message}"))
            _not_started(case, late, cause)
        case events.ReplicaExited() if event.replica == TENSORBOARD:
            case.judge(tensorboard_exited(case.plan, case.before, event))
            if case.state.ending and not case.state.any_left:
                _end_attempt(case)
        case events.ReplicaExited() if event.replica.is_helper:
            _helper_exited(case, event)
        case events.ReplicaExited():
            _exited(case, event)


def _accept(case: _Case) -> None:
    case.act(
        *(prepare_next(case.state) if case.state.helpers else (Start(case.state.attempt),)), *set_run_timer(case.plan)
    )


def _helper_exited(case: _Case, event: events.ReplicaExited) -> None:
    before = case.before
    if before.ending:
        case.judge(case.state.with_helper(event.replica, judge_exit(before.ending, event)))
        if not case.state.any_helper_left:
            _end_attempt(case)
    elif event.exit.ok:
        case.act(*(prepare_next(case.state) if case.state.any_helper_left else (Start(case.state.attempt),)))
    else:
        case.judge(before.with_helper(event.replica, ended_state(event, Phase.FAILED, reason_of(event.exit))))
        what, reason = ("build", "NotBuilt") if event.replica.role == "build" else ("prepare", "NotPrepared")
        _fail(case, Cause(event.replica, before.attempt, event.exit, what, reason))


def _check_started(case: _Case) -> None:
    """Change to RUNNING when all replicas have started."""
    if case.state.ending or case.state.waiting or case.state.phase is Phase.RUNNING:
        return
    case.decide(decisions.GangStarted(case.state.attempt))
    old = set_old_timer(case.plan, case.state)
    if case.plan.tensorboard:
        _serve_tensorboard(case)
    case.act(*old)


def _serve_tensorboard(case: _Case) -> None:
    if may_serve(case.state):
        case.decide(decisions.TensorBoardRequested(case.state.resumes))
        case.act(Serve(case.state.resumes))


def _exited(case: _Case, event: events.ReplicaExited) -> None:
    plan, before = case.plan, case.before
    if ended_before_decision(event, before):
        case.judge(decide_late_exit(plan, before, event))
    elif before.ending:
        case.judge(before.with_replica(event.replica, judge_exit(before.ending, event)), event.replica)
    else:
        case.judge(decide_exit(plan, before, event), event.replica)
    if case.state.ending is None:
        _revive(case)
        _check_started(case)
        return
    if case.state.lingering and not _any_lingering(plan, case.state):
        case.decide(decisions.GraceEnded(case.state.attempt))
    state = case.state
    unchanged = (state.ending, state.lingering, ps_stop_last(state)) == (
        before.ending,
        before.lingering,
        ps_stop_last(before),
    )
    if state.any_left and unchanged:
        return
    if state.lingering:
        case.act(set_linger_timer(plan, state))
    else:
        _end_attempt(case)


def _any_lingering(plan: Plan, state: RunState) -> bool:
    return any(count and may_linger(plan, role) for role, count in state.left.items())


def _revive(case: _Case) -> None:
    """Stop the replicas that are to restart, wait for their exits and the delay, and start them."""
    plan, state = case.plan, case.state
    if not state.reviving:
        return
    if len(state.revivals) > len(case.before.revivals):
        case.act(*stop_and_delay(plan, state))
    if state.holding or any(not state.replicas[name].phase.is_final for name in state.reviving):
        return
    case.decide(decisions.ReplicasRevived(state.attempt, state.reviving))
    case.act(Start(state.attempt, case.state.incarnations), set_return_timer(plan, case.state))


def _timer_fired(case: _Case, event: events.TimerFired) -> None:
    plan, state = case.plan, case.before
    match event.timer:
        case "delay" if state.phase is Phase.RESTARTING and state.ending is None:
            case.act(Start(state.attempt))
        case "linger" if state.lingering:
            _end_attempt(case)
        case "start" if state.phase is Phase.STARTING and state.ending is None:
            _not_started(case, *start_timed_out(plan, state))
        case timer if state.ending is None and timer == f"return {len(state.revivals)}" and state.waiting:
            _not_started(case, *start_timed_out(plan, state))
        case timer if state.ending is None and timer == f"hold {len(state.revivals)}" and state.holding:
            _revive(case)
        case "run" if plan.timeouts.run_seconds is not None and state.ending is None:
            exit_ = Exit(message=f"the run's time limit of {plan.timeouts.run_seconds:g} s is over")
            _fail(case, Cause(None, state.attempt, exit_, "time", "TimeLimit"))


def _not_started(case: _Case, late: tuple[ReplicaId, ...], cause: Cause | None) -> None:
    if cause:
        _fail(case, cause)
    elif late:
        case.act(stop_remaining(case.plan, case.state).replace(incarnations=case.state.current(late)))


def _fail(case: _Case, cause: Cause) -> None:
    _end(case, Ending(Phase.FAILED, cause.reason, cause))


def _end(case: _Case, ending: Ending) -> None:
    """Record this ending of the run or the attempt, and stop the remaining replicas."""
    state = case.state
    if state.phase in _NO_PROCESS:
        killed = ReplicaState(Phase.KILLED, reason=ending.reason)
        state = state.with_replicas(dict.fromkeys(state.replica_ids, killed))
    case.judge(state.replace(ending=ending))
    _end_attempt(case)


def _end_attempt(case: _Case) -> None:
    """Stop the remaining replicas; if none is left, end the attempt, and restart or end the run."""
    plan = case.plan
    if case.state.lingering:
        case.decide(decisions.GraceEnded(case.state.attempt))
    if case.state.any_left or case.state.stacks_due:
        if not case.state.stacks_due:
            case.act(stop_remaining(plan, case.state))
        return
    case.judge(with_failure_class(plan, reconsider_cause(plan, case.state)))
    state, ending = case.state, case.state.ending
    if ending is None:
        raise AssertionError("a run ends only after its ending was decided")
    cause = ending.cause if ending.phase is Phase.FAILED and not state.out_of_time else None
    if cause and may_restart(plan.restart, state.restarts, cause.failure):
        _restart(case, cause.failure)
    elif state.serves_tensorboard:
        case.act(stop_remaining(plan, state))
    else:
        case.decide(decisions.RunEnded(ending.phase.value, ending.reason, state.verdict))
        case.act(Finish(ending))


def _restart(case: _Case, failure: str) -> None:
    plan, state = case.plan, case.state
    is_delayed = delay_before(plan.restart, sum(state.restarts.values())) > 0
    number = state.restarts.get(failure, 0) + 1
    budget = budget_of(plan.restart, failure)
    case.decide(decisions.RestartChosen(state.attempt + 1, failure, number, budget, is_delayed))
    case.act(delay_restart(plan, case.state) if is_delayed else Start(case.state.attempt))
