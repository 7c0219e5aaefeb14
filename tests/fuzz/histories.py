"""Random histories of runs, and journals with missing and strange events."""

from __future__ import annotations

import json
from collections import deque
from random import Random

from drumline.plan.types import Plan
from drumline.run.action import Action, ChooseDelay, Finish, Prepare, Serve, SetTimer, Start, Stop, TakeStacks
from drumline.run.codec import event_from_data, event_to_data
from drumline.run.event import (
    AttemptPlaced,
    DelayChosen,
    Event,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    ResumeRequested,
    RunAccepted,
    StacksTaken,
    SupervisorReturned,
    TimerFired,
)
from drumline.run.fold import new_run
from drumline.run.state import RunState
from fuzz.cases import Trial, case
from scaffold.decisions import fold, step
from scaffold.gangs import gang
from scaffold.simulation import SimulatedRun
from unit.run.test_machine_properties import check_end, let_it_end, simulate

GANGS = (
    "worker",
    "worker*2",
    "worker*3",
    "chief",
    "chief worker",
    "chief worker*2 ps*2",
    "worker*2 ps",
    "chief ps worker",
)
BUDGETS = ("crash", "early", "lost", "preempted", "hang", "out_of_memory", "rendezvous")


def make_plan(rng: Random) -> Plan:
    """Return a plan of a small gang with a random policy and random budgets."""
    roles = rng.choice(GANGS)
    policies = [
        *(["chief"] if "chief" in roles else []),
        *(["worker-0", "all-workers"] if "worker" in roles else []),
    ]
    words = [roles, f"success={rng.choice(policies)}", *(f"{each}={rng.randrange(3)}" for each in BUDGETS)]
    words += [rng.choice(("", "evaluator")), rng.choice(("", "prepare", "prepare prepare-words"))]
    words += [rng.choice(("", "run=60")), rng.choice(("", "tensorboard", "tensorboard=true"))]
    words += [
        f"backoff_initial_seconds={rng.randrange(2)}",
        rng.choice(("", "framework=torch", "framework=plain")),
    ]
    return gang(" ".join(words))


@case
def history(trial: Trial) -> None:
    """Check that a run ends once, for the right reason and within its budgets; later events change nothing."""
    simulated = SimulatedRun(make_plan(trial.rng))
    simulate(simulated, trial.rng)
    let_it_end(simulated)
    check_end(simulated)
    cut = trial.rng.randint(0, len(simulated.journal))
    written = [json.loads(json.dumps(event_to_data(event))) for event in simulated.journal[:cut]]
    assert fold(simulated.plan, map(event_from_data, written)) == fold(simulated.plan, simulated.journal[:cut])
    ended = simulated.state
    for event in trial.rng.sample(simulated.journal, min(20, len(simulated.journal))):
        if not isinstance(event, ResumeRequested):
            state, _ = step(simulated.plan, ended, event)
            assert state == ended, f"{event} changed a run that was over"


@case
def shaken(trial: Trial) -> None:
    """Check that a run can be ended with a journal that lacks, repeats or reorders events, or has foreign ones."""
    rng = trial.rng
    plan = make_plan(rng)
    events: list[Event] = []
    for each in (plan, make_plan(rng)):
        simulated = SimulatedRun(each)
        simulate(simulated, rng)
        events += simulated.journal if each is plan else rng.sample(simulated.journal, min(len(simulated.journal), 5))
    for _ in range(rng.randrange(8)):
        at, other = rng.randrange(len(events)), rng.randrange(len(events))
        match rng.randrange(3):
            case 0 if len(events) > 1:
                del events[at]
            case 1:
                events.insert(at, events[other])
            case _:
                events[at], events[other] = events[other], events[at]
    if rng.random() < 0.2:
        rng.shuffle(events)
    state = fold(plan, events)
    for failure, spent in state.restarts.items():
        assert spent <= getattr(plan.restart, failure)
    bring_to_its_end(plan, state, rng)


def bring_to_its_end(plan: Plan, state: RunState, rng: Random) -> None:
    """Check that the run ends when its supervisor returns, its actions are followed, and all replicas end."""
    first = SupervisorReturned() if state != new_run(plan) else RunAccepted()
    events: deque[Event] = deque([first])
    timers: list[Event] = []
    for _ in range(5000):
        if not events and timers:
            events.append(timers.pop(rng.randrange(len(timers))))
        assert events, f"no event is left, and the run is {state.phase}: {state}"
        state, actions = step(plan, state, events.popleft())
        for action in actions:
            if isinstance(action, Finish):
                assert state.phase.is_final
                return
            follow(plan, action, events, timers, rng)
        if state.phase.is_final and not events:
            return
    raise AssertionError(f"the run does not end: {state.phase}")


def follow(plan: Plan, action: Action, events: deque[Event], timers: list[Event], rng: Random) -> None:
    """Add the events of an engine that follows this action."""
    end = rng.choice((Exit(0), Exit(0), Exit(1), Exit(signal=9), Exit()))
    match action:
        case Start():
            events.append(AttemptPlaced(action.attempt, tuple("h:1" for _ in plan.replicas)))
            for replica in plan.replicas:
                incarnation = (replica.id, action.attempt, action.incarnations.get(replica.id, 0))
                events.append(ReplicaStarted(*incarnation))
                events.append(ReplicaExited(*incarnation, end, 5.0))
        case Prepare():
            events.append(ReplicaExited(action.helper, 0, action.incarnation, end, 5.0))
        case Stop():
            for each in action.incarnations:
                events.append(ReplicaExited(each.replica, each.attempt, each.incarnation, Exit(signal=15), 6.0))
        case TakeStacks():
            events.append(StacksTaken(action.attempt))
        case SetTimer():
            timers.append(TimerFired(action.timer, action.attempt))
        case ChooseDelay():
            events.append(DelayChosen(action.attempt, action.about_seconds))
        case Serve() | Finish():
            pass
        case _:
            raise AssertionError(action)
