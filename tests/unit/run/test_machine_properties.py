"""Every run ends once, with the right reason and within its budgets, for random histories."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TypeVar

from hypothesis import given, note, settings
from hypothesis import strategies as st

from drumline.plan.types import Plan
from drumline.run.event import (
    AttemptDelayed,
    AttemptPlaced,
    Cause,
    Event,
    Exit,
    FirstStepTaken,
    GangHung,
    ReplicaExited,
    ReplicaStarted,
    ReplicaWaits,
    ResumeRequested,
    RunAccepted,
    StopRequested,
    SummariesFound,
    TimerFired,
)
from drumline.run.restart_unit import restarts_separately
from drumline.run.state import Phase
from drumline.run.success import can_fail_run, deciding_replicas
from scaffold.decisions import fold
from scaffold.effort import examples
from scaffold.gangs import gang
from scaffold.simulation import Incarnation, SimulatedRun

SUCCESS, TERM, KILL = Exit(code=0), Exit(signal=15), Exit(signal=9)
FAILURES = [*(Exit(code=code) for code in (1, 3, 42, 127, 137, 143)), TERM, KILL, Exit(signal=6), Exit()]
FAILURES += [exit_.replace(out_of_memory=True) for exit_ in (Exit(code=1), KILL, Exit())]

EXITS = [*FAILURES, *(SUCCESS for _ in FAILURES)]
MOST_RESUMES = 3
T = TypeVar("T")


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a small plan with any policy and any budgets."""
    chief, workers = draw(st.sampled_from([(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]))
    policies = [*(["chief"] if chief else []), *(["worker-0", "all-workers"] if workers else [])]
    few = st.integers(0, 2)
    return gang(
        f"{draw(st.sampled_from(('', '', '', 'prepare', 'prepare prepare-words')))}"
        f" {'chief' if chief else ''} {f'worker*{workers}' if workers else ''}"
        f" ps*{draw(few)} evaluator*{draw(st.integers(0, 1))} success={draw(st.sampled_from(policies))}"
        f" crash={draw(few)} early={draw(few)} lost={draw(few)} preempted={draw(few)} hang={draw(few)}"
        f" backoff_initial_seconds={draw(st.sampled_from((0, 1)))} {draw(st.sampled_from(('', 'run=60')))}"
        f" {draw(st.sampled_from(('', 'tensorboard', 'tensorboard=true')))}"
    )


def simulate(simulated: SimulatedRun, random: Random) -> None:
    """Let random things happen, the usual ones more often."""
    weights = {
        "an event is reported": 30,
        "many events are reported together": 3,
        "the supervisor is killed before it has performed all actions": 2,
        "an event is repeated": 4,
        "a replica exits": 8,
        "a replica obeys": 15,
        "a timer fires": 2,
        "the supervisor is killed": 1,
        "a supervisor returns": 10,
        "the engine will fail": 1,
        "other runs take all resources": 1,
        "other runs release resources": 3,
        "summaries are found": 2,
        "the gang hangs": 1,
        "a replica waits": 3,
        "a replica can never start": 1,
        "a step is taken": 3,
        "the user requests a stop": 1,
        "the run is preempted": 1,
        "the user resumes the run": 2,
    }
    simulated.deliver(RunAccepted())
    for what in random.choices(list(weights), list(weights.values()), k=random.randrange(300)):
        do(what, simulated, random)


def do(what: str, simulated: SimulatedRun, random: Random) -> None:
    """Let this happen, if it can happen now."""
    alive = simulated.alive()
    asked = [incarnation for incarnation in alive if incarnation.asked]
    if what == "a replica exits" and alive:
        simulated.end(random.choice(alive), random.choice(EXITS))
    elif what == "a replica obeys" and asked:
        simulated.end(random.choice(asked), random.choice((TERM, KILL)))
    elif what == "the engine will fail":
        simulated.breaks = random.choice(("place", "start"))
    elif what == "other runs take all resources":
        simulated.has_room = False
    elif what == "other runs release resources":
        simulated.make_room()
    elif what == "the user resumes the run" and (simulated.resumes < MOST_RESUMES or not simulated.ending):
        simulated.resume()
    elif what == "a supervisor returns" and not simulated.supervised:
        simulated.return_supervisor()
    elif not simulated.supervised:
        return  # there is no supervisor for the rest
    elif what == "an event is reported" and simulated.undelivered:
        simulated.deliver(take(simulated.undelivered, random))
    elif what == "many events are reported together":
        together = [*simulated.undelivered, *([simulated.request_stop()] if random.random() < 0.1 else [])]
        simulated.undelivered.clear()
        random.shuffle(together)
        simulated.deliver_together(together)
    elif what == "the supervisor is killed before it has performed all actions" and simulated.undelivered:
        simulated.deliver(take(simulated.undelivered, random), most=random.randrange(2))
    elif what == "an event is repeated":
        # Events of these types are not repeated.
        once = ReplicaWaits | StopRequested | TimerFired | AttemptDelayed | ResumeRequested | FirstStepTaken
        told = [event for event in simulated.journal if not isinstance(event, once)]
        simulated.deliver(random.choice(told))
    elif what == "summaries are found":
        simulated.deliver(SummariesFound())
    elif what == "a replica waits" and alive:
        simulated.deliver(
            ReplicaWaits(*random.choice(alive).key, "Waiting", random.choice(("for room", "for an image", "")))
        )
    elif what == "a replica can never start" and alive:
        simulated.deliver(ReplicaWaits(*random.choice(alive).key, "Waiting", "no such image", is_fatal=True))
    elif what == "the gang hangs":
        simulated.deliver(GangHung(simulated.state.attempt, "no progress"))
    elif what == "a step is taken":
        simulated.deliver(simulated.step())
    elif what == "a timer fires" and simulated.timers:
        simulated.deliver(take(simulated.timers, random))
    elif what == "the supervisor is killed":
        simulated.kill_supervisor()
    elif what == "the user requests a stop":
        simulated.deliver(simulated.request_stop(force=random.random() < 0.5))
    elif what == "the run is preempted":
        simulated.deliver(simulated.request_stop(preempted=True))


def take(several: list[T], random: Random) -> T:
    return several.pop(random.randrange(len(several)))


def let_it_end(simulated: SimulatedRun) -> None:
    """Let the run end: every stop is obeyed, every timer fires and every training succeeds."""
    simulated.breaks = None
    simulated.make_room()
    budgets = simulated.plan.restart
    attempts = 2 * (budgets.crash + budgets.early + budgets.lost + budgets.preempted + budgets.hang + 1)  # or returns
    for _ in range((10 * len(simulated.plan.replicas) + 20) * attempts):
        alive = simulated.alive()
        if simulated.ending:
            return
        if not simulated.supervised:
            simulated.return_supervisor()
        elif simulated.undelivered:
            simulated.deliver(simulated.undelivered.pop(0))
        elif asked := [incarnation for incarnation in alive if incarnation.asked]:
            simulated.end(asked[0], TERM)
        elif alive:
            simulated.end(alive[0], SUCCESS)
        else:
            assert simulated.timers, "no replica runs, no timer is set, and the run continues"
            simulated.deliver(simulated.timers.pop())
    raise AssertionError("the run does not end")


def check_end(simulated: SimulatedRun) -> None:
    """Check that the run has ended as it had to."""
    state, plan = simulated.state, simulated.plan
    assert state == fold(plan, simulated.journal)
    assert simulated.ending
    assert state.ending == simulated.ending
    assert (state.phase is Phase.KILLED) <= (simulated.asked_at is not None) <= (state.phase is not Phase.FAILED)
    if state.phase is Phase.KILLED:
        assert simulated.ending.reason == ("Preempted" if simulated.preempted else "Asked")
    if state.phase is Phase.KILLED and simulated.ending.cause is None:
        assert not was_done(simulated), "a run that had finished before the stop request is FINISHED"
    for failure, spent in state.restarts.items():
        assert 0 < spent <= getattr(plan.restart, failure)
    own = state.causes[simulated.first_attempt :]  # of this incarnation of the run
    charged = [*own, *(revival.cause for revival in state.revivals)]
    assert Counter(cause.failure for cause in charged) == state.restarts
    assert (not state.revivals) or restarts_separately(plan)
    assert [cause.attempt for cause in state.causes] == list(range(state.attempt))
    for cause in (*own, *([simulated.ending.cause] if simulated.ending.cause else [])):
        check_cause(simulated, cause, asked=state.phase is Phase.KILLED)
    if state.phase is Phase.FAILED:
        assert simulated.ending.cause
        assert simulated.ending.cause.attempt == state.attempt
    for name, replica in state.replicas.items():
        incarnation = simulated.incarnations.get((name, state.attempt, replica.incarnation))
        if state.phase is Phase.FINISHED and can_fail_run(name) and name not in state.forgiven:
            assert replica.phase is Phase.FINISHED
        if incarnation and incarnation.asked and incarnation.exit in (TERM, KILL) and replica.phase is Phase.FAILED:
            # It was stopped: it counts as FAILED only if it did not start or did not progress.
            assert replica.reason in ("StartTimeout", "CannotStart", "Hung") or not can_fail_run(name)


def check_cause(simulated: SimulatedRun, cause: Cause, *, asked: bool) -> None:
    """Check that the named replica has failed or exited, and that none failed by itself before."""
    if cause.replica is None:
        return
    assert can_fail_run(cause.replica)
    if cause.reason in ("StartTimeout", "CannotStart", "Hung"):
        return
    is_helper = cause.replica.is_helper
    key = (
        (cause.replica, 0, simulated.resumes) if is_helper else simulated.last_incarnation(cause.replica, cause.attempt)
    )
    named = simulated.incarnations[key]
    assert named.exit
    assert named.exit.code == cause.exit.code
    assert named.exit.signal == cause.exit.signal
    assert (cause.reason == "LeftEarly") == cause.exit.ok
    # Exits after a stop request do not change the cause; with separate restarts others may have failed before.
    if cause.exit.seen and not asked and not restarts_separately(simulated.plan):
        ended = [
            incarnation
            for incarnation in simulated.incarnations.values()
            if incarnation.attempt == cause.attempt and incarnation.exit and not is_helper
        ]
        assert not [incarnation for incarnation in ended if failed_before(incarnation, named)]


def was_done(simulated: SimulatedRun) -> bool:
    """Return whether all replicas that decide had succeeded before the stop request.

    A chief with a failed ps is about to be stopped, and does not count as finished.
    """
    states = simulated.state.replicas
    incarnations = [
        simulated.incarnations.get((name, simulated.state.attempt, states[name].incarnation))
        for name in deciding_replicas(simulated.plan)
    ]
    asked_at = simulated.asked_at or 0.0
    if set(deciding_replicas(simulated.plan)) & set(simulated.state.reviving):
        return False
    return all(
        incarnation and incarnation.exit and incarnation.exit.ok and incarnation.at_seconds < asked_at
        for incarnation in incarnations
    )


def failed_before(incarnation: Incarnation, named: Incarnation) -> bool:
    assert incarnation.exit
    failed = incarnation.exit.seen and not (incarnation.exit.ok and incarnation.replica.role != "ps")
    return can_fail_run(incarnation.replica) and failed and incarnation.at_seconds < named.at_seconds


@settings(max_examples=examples(60), deadline=None)
@given(plan=plans(), seed=st.integers(0, 10**9))
def test_every_run_ends_once_with_the_right_reason_within_its_budgets(plan: Plan, seed: int) -> None:
    for offset in range(30):
        simulated = SimulatedRun(plan)
        try:
            simulate(simulated, Random(seed + offset))
            let_it_end(simulated)
            check_end(simulated)
        except AssertionError:
            note("\n".join(map(repr, simulated.journal)))
            raise


@settings(max_examples=examples(200), deadline=None)
@given(plan=plans(), data=st.data())
def test_the_first_failure_decides_in_whatever_order_the_exits_are_reported(plan: Plan, data: st.DataObject) -> None:
    prepared = (ReplicaExited(each.id, 0, 0, SUCCESS, 0.0) for each in plan.preparations)
    up: list[Event] = [RunAccepted(), *prepared, AttemptPlaced(0, ())]
    up += [ReplicaStarted(replica.id, 0) for replica in plan.replicas]
    order = data.draw(st.permutations([replica.id for replica in plan.replicas]))
    gone = order[: data.draw(st.integers(0, len(order) - 1))]  # while one runs, the attempt is not over
    ends: list[Event] = []
    at_seconds = 0.0
    for name in gone:
        at_seconds += data.draw(st.sampled_from((1.0, 20.0)))
        ends.append(
            ReplicaExited(name, 0, 0, data.draw(st.sampled_from(EXITS).filter(lambda exit_: exit_.seen)), at_seconds)
        )
    in_order = fold(plan, (*up, *ends))
    shuffled = fold(plan, (*up, *data.draw(st.permutations(ends))))
    assert shuffled.ending == in_order.ending
    assert shuffled.left == in_order.left
