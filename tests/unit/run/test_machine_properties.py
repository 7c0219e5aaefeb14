"""Any run, whatever happens to it, ends once, for the right reason and inside its budgets."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TypeVar

from hypothesis import given, note, settings
from hypothesis import strategies as st

from deciding import fold
from drumline.plan.types import Plan
from drumline.run.event import (
    AttemptDelayed,
    AttemptPlaced,
    Cause,
    Event,
    Exit,
    FirstStepTaken,
    LineHung,
    ReplicaExited,
    ReplicaStarted,
    ReplicaWaits,
    ResumeRequested,
    RunAccepted,
    StopRequested,
    SummariesFound,
    TimerFired,
)
from drumline.run.state import Phase
from drumline.run.success import counts, deciders
from drumline.run.unit import lives_apart
from effort import examples
from lines import line
from world import Life, World

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
    return line(
        f"{draw(st.sampled_from(('', '', '', 'prepare', 'prepare prepare-words')))}"
        f" {'chief' if chief else ''} {f'worker*{workers}' if workers else ''}"
        f" ps*{draw(few)} evaluator*{draw(st.integers(0, 1))} success={draw(st.sampled_from(policies))}"
        f" crash={draw(few)} early={draw(few)} lost={draw(few)} preempted={draw(few)} hang={draw(few)}"
        f" backoff_initial_seconds={draw(st.sampled_from((0, 1)))} {draw(st.sampled_from(('', 'run=60')))}"
        f" {draw(st.sampled_from(('', 'tensorboard', 'tensorboard=true')))}"
    )


def live(world: World, random: Random) -> None:
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
    world.tell(RunAccepted())
    for deed in random.choices(list(deeds), list(deeds.values()), k=random.randrange(300)):
        do(deed, world, random)


def do(deed: str, world: World, random: Random) -> None:
    """Let this happen, if it can."""
    alive = world.alive()
    asked = [life for life in alive if life.asked]
    if deed == "somebody ends" and alive:
        world.end(random.choice(alive), random.choice(EXITS))
    elif deed == "somebody obeys" and asked:
        world.end(random.choice(asked), random.choice((TERM, KILL)))
    elif deed == "the engine will break":
        world.breaks = random.choice(("place", "start"))
    elif deed == "others take all the room":
        world.has_room = False
    elif deed == "others make room":
        world.make_room()
    elif deed == "the user goes on with it" and (world.resumes < MOST_RESUMES or not world.ending):
        world.resume()
    elif deed == "a supervisor returns" and not world.supervised:
        world.come_back()
    elif not world.supervised:
        return  # the rest is told to nobody
    elif deed == "something is told" and world.tidings:
        world.tell(take(world.tidings, random))
    elif deed == "much is told together":
        together = [*world.tidings, *([world.wish()] if random.random() < 0.1 else [])]
        world.tidings.clear()
        random.shuffle(together)
        world.tell_together(together)
    elif deed == "the supervisor dies before it has done what follows" and world.tidings:
        world.tell(take(world.tidings, random), most=random.randrange(2))
    elif deed == "something is told again":
        # Only who waits is told to wait; all else may be heard twice.
        once = ReplicaWaits | StopRequested | TimerFired | AttemptDelayed | ResumeRequested | FirstStepTaken
        told = [event for event in world.journal if not isinstance(event, once)]
        world.tell(random.choice(told))
    elif deed == "somebody finds summaries":
        world.tell(SummariesFound())
    elif deed == "somebody waits" and alive:
        world.tell(ReplicaWaits(*random.choice(alive).key, "Word", random.choice(("for room", "for an image", ""))))
    elif deed == "somebody will never start" and alive:
        world.tell(ReplicaWaits(*random.choice(alive).key, "Word", "no such image", is_fatal=True))
    elif deed == "nobody gets on":
        world.tell(LineHung(world.state.attempt, "no progress"))
    elif deed == "a step is taken":
        world.tell(world.step())
    elif deed == "a time is over" and world.timers:
        world.tell(take(world.timers, random))
    elif deed == "the supervisor dies":
        world.die()
    elif deed == "the user wants an end":
        world.tell(world.wish(force=random.random() < 0.5))
    elif deed == "somebody wants its machine":
        world.tell(world.wish(preempted=True))


def take(several: list[T], random: Random) -> T:
    return several.pop(random.randrange(len(several)))


def let_it_end(world: World) -> None:
    """Let every stop be obeyed, every time come and every training succeed."""
    world.breaks = None
    world.make_room()
    budgets = world.plan.restart
    attempts = 2 * (budgets.crash + budgets.early + budgets.lost + budgets.preempted + budgets.hang + 1)  # or returns
    for _ in range((10 * len(world.plan.replicas) + 20) * attempts):
        alive = world.alive()
        if world.ending:
            return
        if not world.supervised:
            world.come_back()
        elif world.tidings:
            world.tell(world.tidings.pop(0))
        elif asked := [life for life in alive if life.asked]:
            world.end(asked[0], TERM)
        elif alive:
            world.end(alive[0], SUCCESS)
        else:
            assert world.timers, "nobody lives, and the run goes on"
            world.tell(world.timers.pop())
    raise AssertionError("the run goes on for ever")


def check_end(world: World) -> None:
    """The run has come to what it had to come to."""
    state, plan = world.state, world.plan
    assert state == fold(plan, world.journal)
    assert world.ending
    assert state.ending == world.ending
    assert (state.phase is Phase.KILLED) <= (world.asked_at is not None) <= (state.phase is not Phase.FAILED)
    if state.phase is Phase.KILLED:
        assert world.ending.reason == ("Preempted" if world.preempted else "Asked")
    if state.phase is Phase.KILLED and world.ending.cause is None:
        assert not was_done(world), "what was done before the user's wish was done"
    for failure, spent in state.restarts.items():
        assert 0 < spent <= getattr(plan.restart, failure)
    own = state.causes[world.first_attempt :]  # of this life of the run
    charged = [*own, *(revival.cause for revival in state.revivals)]
    assert Counter(cause.failure for cause in charged) == state.restarts
    assert (not state.revivals) or lives_apart(plan)
    assert [cause.attempt for cause in state.causes] == list(range(state.attempt))
    for cause in (*own, *([world.ending.cause] if world.ending.cause else [])):
        check_cause(world, cause, asked=state.phase is Phase.KILLED)
    if state.phase is Phase.FAILED:
        assert world.ending.cause
        assert world.ending.cause.attempt == state.attempt
    for name, replica in state.replicas.items():
        life = world.lives.get((name, state.attempt, replica.incarnation))
        if state.phase is Phase.FINISHED and counts(name) and name not in state.forgiven:
            assert replica.phase is Phase.FINISHED
        if life and life.asked and life.exit in (TERM, KILL) and replica.phase is Phase.FAILED:
            # Stopped by us: only for what it had done itself, which is not to start, or not to get on.
            assert replica.reason in ("StartTimeout", "CannotStart", "Hung") or not counts(name)


def check_cause(world: World, cause: Cause, *, asked: bool) -> None:
    """Whoever is named has failed or left, and nobody who failed by itself went before it."""
    if cause.replica is None:
        return
    assert counts(cause.replica)
    if cause.reason in ("StartTimeout", "CannotStart", "Hung"):
        return
    helps = cause.replica.is_helper
    key = (cause.replica, 0, world.resumes) if helps else world.last_life(cause.replica, cause.attempt)
    culprit = world.lives[key]
    assert culprit.exit
    assert culprit.exit.code == cause.exit.code
    assert culprit.exit.signal == cause.exit.signal
    assert (cause.reason == "LeftEarly") == cause.exit.ok
    # What is told after the user's wish is not looked into any more; where they live apart, others may have fallen.
    if cause.exit.seen and not asked and not lives_apart(world.plan):
        mates = [life for life in world.lives.values() if life.attempt == cause.attempt and life.exit and not helps]
        assert not [life for life in mates if went_before(life, culprit)]


def was_done(world: World) -> bool:
    """Whether everybody whose end decides had succeeded before the user wanted an end.

    A chief whose ps has fallen is about to be stopped: it is not believed that it was done.
    """
    standing = world.state.replicas
    lives = [world.lives.get((name, world.state.attempt, standing[name].incarnation)) for name in deciders(world.plan)]
    asked_at = world.asked_at or 0.0
    if set(deciders(world.plan)) & set(world.state.reviving):
        return False
    return all(life and life.exit and life.exit.ok and life.at_seconds < asked_at for life in lives)


def went_before(life: Life, culprit: Life) -> bool:
    assert life.exit
    failed = life.exit.seen and not (life.exit.ok and life.replica.role != "ps")
    return counts(life.replica) and failed and life.at_seconds < culprit.at_seconds


@settings(max_examples=examples(60), deadline=None)
@given(plan=lines(), seed=st.integers(0, 10**9))
def test_any_run_ends_once_for_the_right_reason_inside_its_budgets(plan: Plan, seed: int) -> None:
    for chance in range(30):
        world = World(plan)
        try:
            live(world, Random(seed + chance))
            let_it_end(world)
            check_end(world)
        except AssertionError:
            note("\n".join(map(repr, world.journal)))
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
