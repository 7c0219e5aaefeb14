"""The machine: what an event makes of a run, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from drumline.plan.types import Plan, ReplicaId
from drumline.run.action import Action, ChooseDelay, Finish, SetTimer, Start, Stop
from drumline.run.event import (
    AttemptPlaced,
    DelayChosen,
    EngineFailed,
    Event,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    RunAccepted,
    StopRequested,
    SupervisorReturned,
    TimerFired,
)
from drumline.run.failure import failure_class, reason_of
from drumline.run.restart import delay_before, may_restart
from drumline.run.state import Cause, Ending, Phase, ReplicaState, RunState
from drumline.run.success import counts, has_succeeded, left_early, may_linger

# A peer's exit code 0 so shortly before a failure is its cause: whoever leaves first takes the others along.
WITNESS_SECONDS = 15.0

Step = tuple[RunState, tuple[Action, ...]]


def step(plan: Plan, state: RunState, event: Event) -> Step:
    """Return the state after an event and what to do now; what a past attempt does late changes nothing."""
    if state.phase.is_final:
        return state, ()
    match event:
        case RunAccepted():
            state, actions = _begin(plan, state, attempt=0)
            return state, (*actions, *_run_timer(plan))
        case AttemptPlaced(attempt=attempt) if attempt == state.attempt and state.phase is Phase.PENDING:
            state = replace(state, phase=Phase.STARTING, replicas=_all(plan, Phase.STARTING))
            return state, (SetTimer("start", attempt, plan.timeouts.start_seconds),)
        case ReplicaStarted(attempt=attempt) if attempt == state.attempt:
            return _started(state, event), ()
        case ReplicaExited(attempt=attempt) if attempt == state.attempt:
            return _exited(plan, state, event)
        case StopRequested():
            return _asked_to_stop(plan, state, event)
        case TimerFired(attempt=attempt, timer=timer) if attempt == state.attempt or timer == "run":
            return _time_over(plan, state, event)
        case DelayChosen(attempt=attempt) if attempt == state.attempt:
            return replace(state, delay_seconds=event.seconds), (SetTimer("delay", attempt, event.seconds),)
        case EngineFailed(attempt=attempt) if attempt == state.attempt:
            return _engine_failed(plan, state, event)
        case SupervisorReturned():
            return state, tuple(pending(plan, state))
        case AttemptPlaced() | ReplicaStarted() | ReplicaExited() | TimerFired() | DelayChosen() | EngineFailed():
            return state, ()
        case _:
            assert_never(event)


def fold(plan: Plan, events: Iterable[Event]) -> RunState:
    """The state that a list of events leads to."""
    state = RunState()
    for event in events:
        state, _ = step(plan, state, event)
    return state


def pending(plan: Plan, state: RunState) -> Iterable[Action]:
    """What must be under way in this state; given again to a supervisor that takes a run up."""
    if state.phase is Phase.RESTARTING:
        yield SetTimer("delay", state.attempt, state.delay_seconds)
    elif state.ending and state.lingering:
        yield SetTimer("linger", state.attempt, plan.timeouts.grace_seconds)
    elif state.ending:
        yield Stop(_alive(state), state.attempt, plan.timeouts.grace_seconds)
    else:
        yield Start(state.attempt)
        yield SetTimer("start", state.attempt, plan.timeouts.start_seconds)
    yield from _run_timer(plan)


def _begin(plan: Plan, state: RunState, *, attempt: int) -> Step:
    fresh = _all(plan, Phase.PENDING)
    state = replace(state, phase=Phase.PENDING, attempt=attempt, replicas=fresh, ending=None, lingering=False)
    return state, (Start(attempt),)


def _all(plan: Plan, phase: Phase) -> dict[ReplicaId, ReplicaState]:
    return {replica.id: ReplicaState(phase) for replica in plan.replicas}


def _run_timer(plan: Plan) -> tuple[Action, ...]:
    limit = plan.timeouts.run_seconds
    return () if limit is None else (SetTimer("run", 0, limit),)


def _started(state: RunState, event: ReplicaStarted) -> RunState:
    replica = state.replicas[event.replica]
    if replica.phase.is_final:
        return state
    state = _with_replica(state, event.replica, replace(replica, phase=Phase.RUNNING, incarnation=event.incarnation))
    if state.ending is None and not any(each.phase is Phase.STARTING for each in state.replicas.values()):
        return replace(state, phase=Phase.RUNNING)
    return state


def _exited(plan: Plan, state: RunState, event: ReplicaExited) -> Step:
    before = state.replicas[event.replica]
    if before.phase.is_final:
        return state, ()
    state = _with_replica(state, event.replica, _ended(state, event))
    if state.ending is not None:
        return _stopping(plan, state)
    if event.exit.ok and not left_early(event.replica):
        return _succeeded(plan, state) if has_succeeded(plan, state) else (state, ())
    if not counts(event.replica):
        warning = f"{event.replica} failed; the training goes on without it"
        return replace(state, warnings=(*state.warnings, warning)), ()
    return _fell(plan, state, _cause(state, event))


def _ended(state: RunState, event: ReplicaExited) -> ReplicaState:
    """What a replica's end means for it, given what the run was coming to."""
    exit_, reason = event.exit, reason_of(event.exit)
    if exit_.ok:
        phase, reason = Phase.FINISHED, ""
        if state.ending is None and left_early(event.replica):
            phase, reason = Phase.FAILED, "LeftEarly"
    elif state.ending is None:
        phase = Phase.FAILED
    elif state.ending.phase is Phase.FINISHED:
        phase, reason = Phase.FINISHED, "RunOver"
    elif state.ending.phase is Phase.KILLED:
        phase, reason = Phase.KILLED, "Asked"
    elif exit_.code is None or exit_.code in (130, 137, 143):
        phase, reason = Phase.KILLED, "PeerFailed"
    else:
        phase, reason = Phase.FAILED, "Consequence"
    own = state.replicas[event.replica]
    return ReplicaState(phase, own.incarnation, exit_, reason, event.at_seconds)


def _cause(state: RunState, event: ReplicaExited) -> Cause:
    """Whoever went first, whatever its exit code."""
    earlier = [
        (replica.at_seconds, name, replica)
        for name, replica in state.replicas.items()
        if name != event.replica
        and counts(name)
        and replica.exit is not None
        and replica.exit.ok
        and event.at_seconds - WITNESS_SECONDS <= replica.at_seconds <= event.at_seconds
    ]
    if earlier:
        _, name, replica = min(earlier, key=lambda each: (each[0], each[1]))
        return Cause(name, state.attempt, replica.exit or Exit(), "crash", "LeftEarly")
    reason = "LeftEarly" if event.exit.ok else reason_of(event.exit)
    return Cause(event.replica, state.attempt, event.exit, failure_class(event.exit), reason)


def _succeeded(plan: Plan, state: RunState) -> Step:
    state = replace(state, ending=Ending(Phase.FINISHED))
    left = _alive(state)
    waited_for = tuple(replica for replica in left if may_linger(replica))
    if not waited_for:
        return _stopping(plan, state, now=left)
    ps = tuple(replica for replica in left if not may_linger(replica))
    grace = plan.timeouts.grace_seconds
    stop_ps = (Stop(ps, state.attempt, grace),) if ps and not _compute_alive(waited_for) else ()
    return replace(state, lingering=True), (*stop_ps, SetTimer("linger", state.attempt, grace))


def _compute_alive(left: Iterable[ReplicaId]) -> bool:
    return any(replica.role in ("chief", "worker") for replica in left)


def _fell(plan: Plan, state: RunState, cause: Cause) -> Step:
    state = replace(state, ending=Ending(Phase.FAILED, cause.reason, cause))
    return _stopping(plan, state, now=_alive(state))


def _asked_to_stop(plan: Plan, state: RunState, event: StopRequested) -> Step:
    grace = 0.0 if event.force else plan.timeouts.grace_seconds
    # A run that has already succeeded stays a success; one that is failing or waiting is killed instead of restarted.
    if state.ending is None or state.ending.phase is not Phase.FINISHED:
        cause = state.ending.cause if state.ending else None
        state = replace(state, ending=Ending(Phase.KILLED, "Asked", cause))
    state = replace(state, lingering=False)
    return _stopping(plan, state, now=_alive(state), grace_seconds=grace)


def _time_over(plan: Plan, state: RunState, event: TimerFired) -> Step:
    if event.timer == "delay" and state.phase is Phase.RESTARTING:
        return _begin(plan, state, attempt=state.attempt)
    if event.timer == "linger" and state.lingering:
        state = replace(state, lingering=False)
        return _stopping(plan, state, now=_alive(state))
    if event.timer == "start" and state.ending is None and state.phase is Phase.STARTING:
        late = next(name for name, each in state.replicas.items() if each.phase is Phase.STARTING)
        exit_ = Exit(message=f"did not start within {plan.timeouts.start_seconds:g} s")
        return _fell(plan, state, Cause(late, state.attempt, exit_, "lost", "StartTimeout"))
    if event.timer == "run" and state.ending is None:
        exit_ = Exit(message=f"the run's time limit of {plan.timeouts.run_seconds:g} s is over")
        return _fell(plan, state, Cause(None, state.attempt, exit_, "time", "TimeLimit"))
    return state, ()


def _engine_failed(plan: Plan, state: RunState, event: EngineFailed) -> Step:
    if state.ending is not None:
        return state, ()
    return _fell(plan, state, Cause(None, state.attempt, Exit(message=event.message), "engine", "EngineFailed"))


def _stopping(
    plan: Plan, state: RunState, *, now: tuple[ReplicaId, ...] = (), grace_seconds: float | None = None
) -> Step:
    """Go on with an ending: stop who should be stopped now, and when nobody is left, conclude."""
    left = _alive(state)
    if left:
        if state.lingering and not any(may_linger(replica) for replica in left):
            state, now = replace(state, lingering=False), left
        grace = plan.timeouts.grace_seconds if grace_seconds is None else grace_seconds
        return state, ((Stop(now, state.attempt, grace),) if now else ())
    return _conclude(plan, state)


def _conclude(plan: Plan, state: RunState) -> Step:
    ending = state.ending
    if ending is None:
        raise AssertionError("a run ends only after it was decided how")
    cause = ending.cause
    if ending.phase is Phase.FAILED and cause and may_restart(plan.restart, state.restarts, cause.failure):
        return _restart(plan, state, cause)
    return replace(state, phase=ending.phase, lingering=False), (Finish(ending),)


def _restart(plan: Plan, state: RunState, cause: Cause) -> Step:
    spent = {**state.restarts, cause.failure: state.restarts.get(cause.failure, 0) + 1}
    delay = delay_before(plan.restart, len(state.causes))
    state = replace(
        state,
        phase=Phase.RESTARTING,
        attempt=state.attempt + 1,
        replicas=_all(plan, Phase.PENDING),
        ending=None,
        lingering=False,
        causes=(*state.causes, cause),
        restarts=spent,
        delay_seconds=delay,
    )
    if delay == 0:
        return _begin(plan, state, attempt=state.attempt)
    return state, (ChooseDelay(state.attempt, delay),)


def _alive(state: RunState) -> tuple[ReplicaId, ...]:
    """Whoever may still have a process: everybody whose end nobody has seen."""
    if state.phase in (Phase.CREATED, Phase.RESTARTING):
        return ()
    return tuple(name for name, replica in state.replicas.items() if not replica.phase.is_final)


def _with_replica(state: RunState, name: ReplicaId, replica: ReplicaState) -> RunState:
    return replace(state, replicas={**state.replicas, name: replica})
