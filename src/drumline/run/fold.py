"""Compute the state of a run from recorded events and decisions, without any policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from drumline.plan.types import TENSORBOARD, Plan
from drumline.record import Record
from drumline.run import decision as decisions
from drumline.run import event as events
from drumline.run.decision import Decision
from drumline.run.event import Event
from drumline.run.resume import may_resume, resumed
from drumline.run.state import NOT_STARTED, Ending, Phase, ReplicaState, Revival, RunState, is_past


class Folded(Record):
    """The state after an event and its decisions, and the state before the restart that these include.

    Without a restart, both are the same state.
    """

    state: RunState
    before_restart: RunState


def new_run(plan: Plan) -> RunState:
    """Return the state of a run without events."""
    return RunState(replica_ids=tuple(each.id for each in plan.replicas), helper_ids=plan.helpers)


def fold(state: RunState, *entries: Event | Decision) -> RunState:
    """Return the state after these entries; an event of a past attempt or incarnation changes nothing."""
    for entry in entries:
        state = _after_decision(state, entry) if isinstance(entry, Decision) else _after_event(state, entry)
    return state


def fold_entry(state: RunState, event: Event, recorded: Iterable[Decision]) -> Folded:
    """Return the state after an event and the decisions that were recorded with it."""
    state = fold(state, event)
    before_restart: RunState | None = None
    for decision in recorded:
        if isinstance(decision, decisions.RestartChosen):
            before_restart = state
        state = fold(state, decision)
    return Folded(state, before_restart or state)


def _after_event(state: RunState, event: Event) -> RunState:
    if isinstance(event, events.ResumeRequested) and may_resume(state):
        return _accepted(resumed(state))
    if isinstance(event, events.CauseNamed):  # also after the end: the last exit may correct the cause
        return state.replace(named=(*state.named, event.cause)) if event.attempt == state.attempt else state
    if state.phase.is_final or is_past(state, event):
        return state
    match event:
        case events.RunAccepted() | events.SupervisorReturned():
            return _accepted(state) if state.phase is Phase.CREATED else state
        case events.AttemptPlaced():
            return _placed(state)
        case events.AttemptDelayed():
            return _delayed(state, event)
        case events.ReplicaStarted():
            return state.with_state(event.replica, ReplicaState(Phase.RUNNING, event.incarnation))
        case events.ReplicaWaits():
            return _waits(state, event)
        case events.ReplicaExited():
            return _exited(state, event)
        case events.FirstStepTaken():
            return state if state.ending else state.replace(stepped=True)
        case events.StacksTaken():
            return state.replace(stacks_due=False)
        case events.StepsStalled():
            return state if state.ending else state.replace(stalled=event)
        case events.StepsResumed():
            return state.replace(stalled=None)
        case events.StopRequested():
            return state.replace(forced=state.forced or event.force, stacks_due=False)
        case events.TimerFired():
            return _timer_fired(state, event)
        case events.DelayChosen():
            waits = state.holding or state.phase is Phase.RESTARTING
            return state if state.ending or not waits or state.delay_seconds is not None else _delay(state, event)
        case events.EngineWarned():
            return state.with_warning(event.message)
        case events.TensorBoardServed():
            return state.replace(tensorboard_address=event.address)
        case events.RoomFound() | events.GangHung() | events.RendezvousFailed() | events.EngineFailed():
            return state  # only the decisions that are recorded with it change the state
        case events.SummariesFound() | events.ProjectCarried() | events.ResumeRequested():
            return state
        case _:
            assert_never(event)


def _after_decision(state: RunState, event: Decision) -> RunState:
    match event:
        case decisions.ReplicasJudged():
            return _judged(state, event)
        case decisions.GangStarted():
            return state.replace(phase=Phase.RUNNING) if state.replicas else state
        case decisions.AttemptEnded():
            ending = Ending(Phase(event.phase), event.reason, event.cause, event.at_seconds)
            return state.replace(
                ending=ending, verdict=event.message, stacks_due=event.awaits_stacks, lingering=event.lingers
            )
        case decisions.GraceEnded():
            return state.replace(lingering=False)
        case decisions.RestartChosen():
            return _restarted(state, event)
        case decisions.RevivalChosen():
            return _restarting_alone(state, event)
        case decisions.ReplicasRevived():
            return _restarted_alone(state, event)
        case decisions.RunWarned():
            return state.with_warning(event.message)
        case decisions.TensorBoardRequested():
            return state.replace(tensorboard=ReplicaState(incarnation=event.incarnation))
        case decisions.RunEnded():
            return state.replace(phase=Phase(event.phase)) if state.ending else state
        case _:
            assert_never(event)


def _accepted(state: RunState) -> RunState:
    if not state.helper_ids:
        return _pending(state)
    helpers = dict.fromkeys(state.helper_ids, ReplicaState(incarnation=state.resumes))
    return _all(state.replace(phase=Phase.BUILDING, helpers=helpers), ReplicaState(Phase.CREATED))


def _pending(state: RunState) -> RunState:
    return _all(state.replace(phase=Phase.PENDING), ReplicaState())


def _all(state: RunState, replica: ReplicaState) -> RunState:
    return state.with_replicas(dict.fromkeys(state.replica_ids, replica))


def _placed(state: RunState) -> RunState:
    if state.phase is not Phase.PENDING:
        return state
    starting = ReplicaState(Phase.STARTING)
    replicas = {name: starting if each.phase is Phase.PENDING else each for name, each in state.replicas.items()}
    return state.replace(phase=Phase.STARTING, replicas=replicas, waits="")


def _delayed(state: RunState, event: events.AttemptDelayed) -> RunState:
    """Return the state of a run that waits for resources.

    This also happens in STARTING: the supervisor was killed after the placement, and its successor has to wait.
    """
    if state.ending or state.phase not in (Phase.PENDING, Phase.STARTING):
        return state
    return _all(state.replace(phase=Phase.PENDING, waits=event.message), ReplicaState())


def _waits(state: RunState, event: events.ReplicaWaits) -> RunState:
    replica_state = state.state_of(event.replica)
    if replica_state is None or replica_state.phase not in NOT_STARTED or event.replica == TENSORBOARD:
        return state
    reason = event.reason if event.message else ""
    return state.with_state(event.replica, replica_state.replace(reason=reason, waits=event.message))


def _exited(state: RunState, event: events.ReplicaExited) -> RunState:
    """Return the state after an exit without a decision; when all helpers succeeded, the first attempt is pending."""
    phase = Phase.FINISHED if event.exit.ok else Phase.FAILED
    end = ReplicaState(phase, event.incarnation, event.exit, "", event.at_seconds, event.evidence)
    state = state.with_state(event.replica, end)
    if event.replica == TENSORBOARD:
        return state.replace(tensorboard_address="")
    prepared = event.replica.is_helper and event.exit.ok and not state.ending and not state.any_helper_left
    return _pending(state) if prepared else state


def _timer_fired(state: RunState, event: events.TimerFired) -> RunState:
    match event.timer:
        case "delay" if state.phase is Phase.RESTARTING and state.ending is None:
            return _pending(state)
        case "old":
            return state.replace(may_have_stepped=True)
        case "run":
            return state.replace(out_of_time=True)  # also while an attempt is being stopped
        case timer if state.ending is None and timer == f"hold {len(state.revivals)}":
            return state.replace(holding=False)
    return state


def _delay(state: RunState, event: events.DelayChosen) -> RunState:
    return state.replace(delay_seconds=event.seconds)


def _judged(state: RunState, event: decisions.ReplicasJudged) -> RunState:
    if event.verdicts and not state.replicas:  # the run ended before its replicas had a state
        state = _all(state, ReplicaState())
    judged = {
        verdict.replica: replica_state.replace(phase=Phase(verdict.phase), reason=verdict.reason)
        for verdict in event.verdicts
        if (replica_state := state.state_of(verdict.replica))
    }
    if len(judged) == len(state.replicas) and not any(name.is_helper for name in judged):
        state = state.with_replicas({**state.replicas, **judged})  # changing thousands one by one takes too long
    else:
        for name, replica_state in judged.items():
            state = state.with_state(name, replica_state)
    return state.replace(forgiven=(*state.forgiven, *event.forgiven))


def _restarted(state: RunState, event: decisions.RestartChosen) -> RunState:
    cause = state.ending.cause if state.ending else None
    if cause is None or event.attempt != state.attempt + 1:
        return state
    state = _all(state, ReplicaState()).replace(
        phase=Phase.RESTARTING,
        attempt=event.attempt,
        ending=None,
        verdict="",
        causes=(*state.causes, cause),
        verdicts=(*state.verdicts, state.verdict),
        named=(),
        restarts={**state.restarts, event.failure: event.number},
        delay_seconds=None,
        reviving=(),
        holding=False,
        forgiven=(),
        stepped=False,
        stalled=None,
        may_have_stepped=False,
    )
    return state if event.is_delayed else _pending(state)


def _restarting_alone(state: RunState, event: decisions.RevivalChosen) -> RunState:
    revival = Revival(event.replicas, event.cause, event.number, event.budget, event.at_seconds)
    return state.replace(
        reviving=tuple(dict.fromkeys((*state.reviving, *event.replicas))),
        revivals=(*state.revivals, revival),
        holding=event.is_delayed,
        delay_seconds=None,
        restarts={**state.restarts, event.cause.failure: event.number},
    )


def _restarted_alone(state: RunState, event: decisions.ReplicasRevived) -> RunState:
    begun = {
        name: ReplicaState(Phase.STARTING, each.incarnation + 1) if name in event.replicas else each
        for name, each in state.replicas.items()
    }
    forgiven = tuple(name for name in state.forgiven if name not in event.replicas)
    return state.with_replicas(begun).replace(reviving=(), forgiven=forgiven, delay_seconds=None)
