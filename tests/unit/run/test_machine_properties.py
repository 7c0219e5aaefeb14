"""Any run, whatever happens to it, ends once, for the right reason and inside its budgets."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from drumline.plan.types import Plan
from drumline.run.event import (
    AttemptPlaced,
    Event,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    RunAccepted,
    StopRequested,
    TimerFired,
)
from drumline.run.machine import fold
from drumline.run.state import Cause, Phase
from drumline.run.success import counts
from lines import line
from world import Life, World

SUCCESS, TERM, KILL = Exit(code=0), Exit(signal=15), Exit(signal=9)
FAILURES = [*(Exit(code=code) for code in (1, 3, 42, 127, 137, 143)), TERM, KILL, Exit(signal=6), Exit()]

exits = st.one_of(st.just(SUCCESS), st.sampled_from(FAILURES))
positions = st.integers(0, 30)


@st.composite
def lines(draw: st.DrawFn) -> Plan:
    """A small line with any policy and any budgets."""
    chief, workers = draw(st.sampled_from([(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]))
    policies = [*(["chief"] if chief else []), *(["worker-0", "all-workers"] if workers else [])]
    few = st.integers(0, 2)
    return line(
        f"{'chief' if chief else ''} {f'worker*{workers}' if workers else ''}"
        f" ps*{draw(few)} evaluator*{draw(st.integers(0, 1))} success={draw(st.sampled_from(policies))}"
        f" crash={draw(few)} lost={draw(few)} preempted={draw(few)}"
        f" backoff_initial_seconds={draw(st.sampled_from((0, 1)))} {draw(st.sampled_from(('', 'run=60')))}"
    )


class Run(RuleBasedStateMachine):
    """One run, and everything that can happen to it."""

    @initialize(plan=lines())
    def begin(self, plan: Plan) -> None:
        self.world = World(plan)
        self.world.tell(RunAccepted())

    @precondition(lambda self: self.world.supervised and self.world.tidings)
    @rule(position=positions)
    def something_is_told(self, position: int) -> None:
        tidings = self.world.tidings
        self.world.tell(tidings.pop(position % len(tidings)))

    @precondition(lambda self: self.world.supervised and self.world.tidings)
    @rule(position=positions, most=st.integers(0, 1))
    def the_supervisor_dies_before_it_has_done_all_that_follows(self, position: int, most: int) -> None:
        tidings = self.world.tidings
        self.world.tell(tidings.pop(position % len(tidings)), most=most)

    @precondition(lambda self: self.world.alive())
    @rule(position=positions, exit_=exits)
    def somebody_ends(self, position: int, exit_: Exit) -> None:
        alive = self.world.alive()
        self.world.end(alive[position % len(alive)], exit_)

    @precondition(lambda self: any(life.asked for life in self.world.alive()))
    @rule(exit_=st.sampled_from((TERM, KILL)))
    def somebody_obeys(self, exit_: Exit) -> None:
        self.world.end(next(life for life in self.world.alive() if life.asked), exit_)

    @precondition(lambda self: self.world.supervised and self.world.timers)
    @rule(position=positions)
    def a_time_is_over(self, position: int) -> None:
        timers = self.world.timers
        self.world.tell(timers.pop(position % len(timers)))

    @precondition(lambda self: self.world.supervised)
    @rule(force=st.booleans())
    def the_user_wants_an_end(self, force: bool) -> None:
        self.world.tell(StopRequested(force))

    @precondition(lambda self: self.world.supervised)
    @rule(position=positions)
    def something_is_told_again(self, position: int) -> None:
        told = [each for each in self.world.journal if not isinstance(each, StopRequested | TimerFired)]
        self.world.tell(told[position % len(told)])

    @precondition(lambda self: self.world.supervised)
    @rule()
    def the_supervisor_dies(self) -> None:
        self.world.die()

    @precondition(lambda self: not self.world.supervised)
    @rule()
    def a_supervisor_returns(self) -> None:
        self.world.come_back()

    @rule(where=st.sampled_from(("place", "start")))
    def the_engine_will_break(self, where: str) -> None:
        self.world.breaks = where

    def teardown(self) -> None:
        """However it stands: if it is left alone now, it comes to its end, and that was right."""
        if hasattr(self, "world"):
            let_it_end(self.world)
            check_end(self.world)


def let_it_end(world: World) -> None:
    """Let every stop be obeyed, every time come and every training succeed."""
    world.breaks = None
    budgets = world.plan.restart
    attempts = budgets.crash + budgets.lost + budgets.preempted + 1
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
        elif world.timers:
            world.tell(world.timers.pop(0))
        else:
            assert alive, "nobody lives, and the run goes on"
            world.end(alive[0], SUCCESS)
    raise AssertionError("the run goes on for ever")


def check_end(world: World) -> None:
    """The run has come to what it had to come to."""
    state, plan = world.state, world.plan
    assert state == fold(plan, world.journal)
    assert world.ending
    assert state.ending == world.ending
    assert (state.phase is Phase.KILLED) <= world.asked_to_stop <= (state.phase is not Phase.FAILED)
    for failure, spent in state.restarts.items():
        assert 0 < spent <= getattr(plan.restart, failure)
    assert Counter(cause.failure for cause in state.causes) == state.restarts
    assert len(state.causes) == state.attempt
    for cause in (*state.causes, *([world.ending.cause] if world.ending.cause else [])):
        check_cause(world, cause, asked=state.phase is Phase.KILLED)
    if state.phase is Phase.FAILED:
        assert world.ending.cause
        assert world.ending.cause.attempt == state.attempt
    for name, replica in state.replicas.items():
        life = world.lives.get((name, state.attempt))
        if state.phase is Phase.FINISHED and counts(name):
            assert replica.phase is Phase.FINISHED
        if life and life.asked and life.exit in (TERM, KILL) and replica.phase is Phase.FAILED:
            # Stopped by us: only for what it had done itself, which is not to start.
            assert replica.reason == "StartTimeout" or not counts(name)


def check_cause(world: World, cause: Cause, *, asked: bool) -> None:
    """Whoever is named has failed or left, and nobody who failed by itself went before it."""
    if cause.replica is None or cause.reason == "StartTimeout":
        return
    culprit = world.lives[cause.replica, cause.attempt]
    assert counts(cause.replica)
    assert culprit.exit == cause.exit
    assert (cause.reason == "LeftEarly") == cause.exit.ok
    if cause.exit.seen and not asked:  # what is told after the user's wish is not looked into any more
        mates = [life for (_, attempt), life in world.lives.items() if attempt == cause.attempt]
        assert not [life for life in mates if went_before(life, culprit)]


def went_before(life: Life, culprit: Life) -> bool:
    assert life.exit
    failed = life.exit.seen and not (life.exit.ok and life.replica.role != "ps")
    return counts(life.replica) and failed and life.at_seconds < culprit.at_seconds


TestRun = Run.TestCase


@given(plan=lines(), data=st.data())
def test_the_first_to_go_decides_in_whatever_order_the_ends_are_told(plan: Plan, data: st.DataObject) -> None:
    up: list[Event] = [RunAccepted(), AttemptPlaced(0, ())]
    up += [ReplicaStarted(replica.id, 0) for replica in plan.replicas]
    order = data.draw(st.permutations([replica.id for replica in plan.replicas]))
    gone = order[: data.draw(st.integers(0, len(order) - 1))]  # while somebody is left, the attempt is not over
    ends: list[Event] = []
    at_seconds = 0.0
    for name in gone:
        at_seconds += data.draw(st.sampled_from((1.0, 20.0)))
        ends.append(ReplicaExited(name, 0, 0, data.draw(exits.filter(lambda exit_: exit_.seen)), at_seconds))
    in_order = fold(plan, (*up, *ends))
    shuffled = fold(plan, (*up, *data.draw(st.permutations(ends))))
    assert shuffled.ending == in_order.ending
    assert shuffled.left == in_order.left
