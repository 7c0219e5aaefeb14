"""Any run, whatever happens to it, ends once, for the right reason and inside its budgets."""

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
def lines(draw: st.DrawFn) -> Plan:
    """A small line with any policy and any budgets."""
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


def live(simulated: SimulatedRun, random: Random) -> None:
    """Let anything happen, the usual more often."""
    deeds = {
        "something is told": 30,
        "much is told together": 3,
        "the supervisor dies before it has done what follows": 2,
        "something is told again": 4,
        "somebody ends": 8,
        "somebody obeys": 15,
        "a time is over": 2,
        "the supervisor dies": 1,
        "a supervisor returns": 10,
        "the engine will break": 1,
        "others take all the room": 1,
        "others make room": 3,
        "somebody finds summaries": 2,
        "nobody gets on": 1,
        "somebody waits": 3,
        "somebody will never start": 1,
        "a step is taken": 3,
        "the user wants an end": 1,
        "somebody wants its machine": 1,
        "the user goes on with it": 2,
    }
    simulated.tell(RunAccepted())
    for deed in random.choices(list(deeds), list(deeds.values()), k=random.randrange(300)):
        do(deed, simulated, random)


def do(deed: str, simulated: SimulatedRun, random: Random) -> None:
    """Let this happen, if it can."""
    alive = simulated.alive()
    asked = [incarnation for incarnation in alive if incarnation.asked]
    if deed == "somebody ends" and alive:
        simulated.end(random.choice(alive), random.choice(EXITS))
    elif deed == "somebody obeys" and asked:
        simulated.end(random.choice(asked), random.choice((TERM, KILL)))
    elif deed == "the engine will break":
        simulated.breaks = random.choice(("place", "start"))
    elif deed == "others take all the room":
        simulated.has_room = False
    elif deed == "others make room":
        simulated.make_room()
    elif deed == "the user goes on with it" and (simulated.resumes < MOST_RESUMES or not simulated.ending):
        simulated.resume()
    elif deed == "a supervisor returns" and not simulated.supervised:
        simulated.come_back()
    elif not simulated.supervised:
        return  # the rest is told to nobody
    elif deed == "something is told" and simulated.tidings:
        simulated.tell(take(simulated.tidings, random))
    elif deed == "much is told together":
        together = [*simulated.tidings, *([simulated.wish()] if random.random() < 0.1 else [])]
        simulated.tidings.clear()
        random.shuffle(together)
        simulated.tell_together(together)
    elif deed == "the supervisor dies before it has done what follows" and simulated.tidings:
        simulated.tell(take(simulated.tidings, random), most=random.randrange(2))
    elif deed == "something is told again":
        # Only who waits is told to wait; all else may be heard twice.
        once = ReplicaWaits | StopRequested | TimerFired | AttemptDelayed | ResumeRequested | FirstStepTaken
        told = [event for event in simulated.journal if not isinstance(event, once)]
        simulated.tell(random.choice(told))
    elif deed == "somebody finds summaries":
        simulated.tell(SummariesFound())
    elif deed == "somebody waits" and alive:
        simulated.tell(ReplicaWaits(*random.choice(alive).key, "Word", random.choice(("for room", "for an image", ""))))
    elif deed == "somebody will never start" and alive:
        simulated.tell(ReplicaWaits(*random.choice(alive).key, "Word", "no such image", is_fatal=True))
    elif deed == "nobody gets on":
        simulated.tell(GangHung(simulated.state.attempt, "no progress"))
    elif deed == "a step is taken":
        simulated.tell(simulated.step())
    elif deed == "a time is over" and simulated.timers:
        simulated.tell(take(simulated.timers, random))
    elif deed == "the supervisor dies":
        simulated.die()
    elif deed == "the user wants an end":
        simulated.tell(simulated.wish(force=random.random() < 0.5))
    elif deed == "somebody wants its machine":
        simulated.tell(simulated.wish(preempted=True))


def take(several: list[T], random: Random) -> T:
    return several.pop(random.randrange(len(several)))


def let_it_end(simulated: SimulatedRun) -> None:
    """Let every stop be obeyed, every time come and every training succeed."""
    simulated.breaks = None
    simulated.make_room()
    budgets = simulated.plan.restart
    attempts = 2 * (budgets.crash + budgets.early + budgets.lost + budgets.preempted + budgets.hang + 1)  # or returns
    for _ in range((10 * len(simulated.plan.replicas) + 20) * attempts):
        alive = simulated.alive()
        if simulated.ending:
            return
        if not simulated.supervised:
            simulated.come_back()
        elif simulated.tidings:
            simulated.tell(simulated.tidings.pop(0))
        elif asked := [incarnation for incarnation in alive if incarnation.asked]:
            simulated.end(asked[0], TERM)
        elif alive:
            simulated.end(alive[0], SUCCESS)
        else:
            assert simulated.timers, "nobody incarnations, and the run goes on"
            simulated.tell(simulated.timers.pop())
    raise AssertionError("the run goes on for ever")


def check_end(simulated: SimulatedRun) -> None:
    """The run has come to what it had to come to."""
    state, plan = simulated.state, simulated.plan
    assert state == fold(plan, simulated.journal)
    assert simulated.ending
    assert state.ending == simulated.ending
    assert (state.phase is Phase.KILLED) <= (simulated.asked_at is not None) <= (state.phase is not Phase.FAILED)
    if state.phase is Phase.KILLED:
        assert simulated.ending.reason == ("Preempted" if simulated.preempted else "Asked")
    if state.phase is Phase.KILLED and simulated.ending.cause is None:
        assert not was_done(simulated), "what was done before the user's wish was done"
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
            # Stopped by us: only for what it had done itself, which is not to start, or not to get on.
            assert replica.reason in ("StartTimeout", "CannotStart", "Hung") or not can_fail_run(name)


def check_cause(simulated: SimulatedRun, cause: Cause, *, asked: bool) -> None:
    """Whoever is named has failed or left, and nobody who failed by itself went before it."""
    if cause.replica is None:
        return
    assert can_fail_run(cause.replica)
    if cause.reason in ("StartTimeout", "CannotStart", "Hung"):
        return
    helps = cause.replica.is_helper
    key = (cause.replica, 0, simulated.resumes) if helps else simulated.last_incarnation(cause.replica, cause.attempt)
    culprit = simulated.incarnations[key]
    assert culprit.exit
    assert culprit.exit.code == cause.exit.code
    assert culprit.exit.signal == cause.exit.signal
    assert (cause.reason == "LeftEarly") == cause.exit.ok
    # What is told after the user's wish is not looked into any more; where they live apart, others may have fallen.
    if cause.exit.seen and not asked and not restarts_separately(simulated.plan):
        mates = [
            incarnation
            for incarnation in simulated.incarnations.values()
            if incarnation.attempt == cause.attempt and incarnation.exit and not helps
        ]
        assert not [incarnation for incarnation in mates if went_before(incarnation, culprit)]


def was_done(simulated: SimulatedRun) -> bool:
    """Whether everybody whose end decides had succeeded before the user wanted an end.

    A chief whose ps has fallen is about to be stopped: it is not believed that it was done.
    """
    standing = simulated.state.replicas
    incarnations = [
        simulated.incarnations.get((name, simulated.state.attempt, standing[name].incarnation))
        for name in deciding_replicas(simulated.plan)
    ]
    asked_at = simulated.asked_at or 0.0
    if set(deciding_replicas(simulated.plan)) & set(simulated.state.reviving):
        return False
    return all(
        incarnation and incarnation.exit and incarnation.exit.ok and incarnation.at_seconds < asked_at
        for incarnation in incarnations
    )


def went_before(incarnation: Incarnation, culprit: Incarnation) -> bool:
    assert incarnation.exit
    failed = incarnation.exit.seen and not (incarnation.exit.ok and incarnation.replica.role != "ps")
    return can_fail_run(incarnation.replica) and failed and incarnation.at_seconds < culprit.at_seconds


@settings(max_examples=examples(60), deadline=None)
@given(plan=lines(), seed=st.integers(0, 10**9))
def test_any_run_ends_once_for_the_right_reason_inside_its_budgets(plan: Plan, seed: int) -> None:
    for chance in range(30):
        simulated = SimulatedRun(plan)
        try:
            live(simulated, Random(seed + chance))
            let_it_end(simulated)
            check_end(simulated)
        except AssertionError:
            note("\n".join(map(repr, simulated.journal)))
            raise


@settings(max_examples=examples(200), deadline=None)
@given(plan=lines(), data=st.data())
def test_the_first_to_go_decides_in_whatever_order_the_ends_are_told(plan: Plan, data: st.DataObject) -> None:
    prepared = (ReplicaExited(each.id, 0, 0, SUCCESS, 0.0) for each in plan.preparations)
    up: list[Event] = [RunAccepted(), *prepared, AttemptPlaced(0, ())]
    up += [ReplicaStarted(replica.id, 0) for replica in plan.replicas]
    order = data.draw(st.permutations([replica.id for replica in plan.replicas]))
    gone = order[: data.draw(st.integers(0, len(order) - 1))]  # while somebody is left, the attempt is not over
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
