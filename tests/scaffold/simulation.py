"""A made-up simulated around the machine: an engine, clocks, and supervisors that die and return.

Replicas end as they like; tidings of them are told late, in any order and twice. Every order of the machine is checked
for sense before it is followed.
"""

from __future__ import annotations

from dataclasses import dataclass

from drumline.plan.types import COMPUTING, TENSORBOARD, Plan, ReplicaId
from drumline.run.action import Action, ChooseDelay, Finish, Prepare, Serve, SetTimer, Start, Stop, TakeStacks
from drumline.run.event import (
    AttemptDelayed,
    AttemptPlaced,
    DelayChosen,
    EngineFailed,
    Event,
    Exit,
    FirstStepTaken,
    ReplicaExited,
    ReplicaStarted,
    ResumeRequested,
    RoomFound,
    StacksTaken,
    StopRequested,
    SupervisorReturned,
    TensorBoardServed,
    TimerFired,
)
from drumline.run.fold import new_run
from drumline.run.state import Ending, Phase
from scaffold.decisions import fold, step

Key = tuple[ReplicaId, int, int]


@dataclass
class Incarnation:
    """One process of a replica in one attempt."""

    replica: ReplicaId
    attempt: int
    incarnation: int = 0
    asked: bool = False  # to end
    exit: Exit | None = None
    at_seconds: float = 0.0

    def tidings(self) -> list[Event]:
        """Everything there is to tell of it."""
        started = ReplicaStarted(*self.key)
        return [started] if self.exit is None else [started, ReplicaExited(*self.key, self.exit, self.at_seconds)]

    @property
    def key(self) -> Key:
        """Which one it is."""
        return self.replica, self.attempt, self.incarnation


class SimulatedRun:
    """One run of a plan, and everything outside the machine that it depends on."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.state = new_run(plan)
        self.journal: list[Event] = []
        self.incarnations: dict[Key, Incarnation] = {}
        self.resumes = 0
        self._begin()
        self.has_room = True
        self.breaks: str | None = None  # where the engine fails the next time: "place" or "start"
        self._placed: set[int] = set()
        self._clock = 0.0
        self.take_office()

    def _begin(self) -> None:
        """A incarnation of the run begins: nothing is decided, and nothing was requested."""
        self.first_attempt = self.state.attempt
        self.ending: Ending | None = None
        self.asked_at: float | None = None  # when an end was first requested
        self.preempted = False  # it was not the user
        self.forced = False
        self.last_attempt: int | None = None  # once the time of the run is over

    def resume(self) -> None:
        """The user goes on with a run that is over, under a supervisor of its own; one that goes on is left alone."""
        before = self.state
        if before.phase not in (Phase.FAILED, Phase.KILLED):
            assert step(self.plan, before, ResumeRequested()) == (before, ())
            return
        self.take_office()
        self.resumes += 1
        self.journal.append(ResumeRequested())
        self.state, actions = step(self.plan, before, ResumeRequested())
        assert (self.state.attempt, self.state.resumes) == (before.attempt + 1, self.resumes)
        assert not self.state.restarts
        self._begin()
        for action in actions:
            self._check(action)
        for action in actions:
            self._perform(action)

    def take_office(self) -> None:
        """A supervisor begins: it knows nothing but the journal, and nothing is under way."""
        self.supervised = True
        self.tidings: list[Event] = []  # that happened and have not been told
        self.timers: list[TimerFired] = []
        self._watched: set[Key] = set()
        self._waiting: int | None = None  # the attempt that waits for room

    def die(self) -> None:
        """The supervisor is gone, and with it everything that it had not written down."""
        self.take_office()
        self.supervised = False

    def come_back(self) -> None:
        """Another supervisor reads the journal and goes on; being told to do so twice is no different."""
        self.take_office()
        assert fold(self.plan, self.journal) == self.state
        breaks = self.breaks
        actions = self.tell(SupervisorReturned())
        before = {key: (incarnation.asked, incarnation.exit) for key, incarnation in self.incarnations.items()}
        self.breaks = breaks
        for action in actions:
            self._perform(action)
        assert before == {key: (incarnation.asked, incarnation.exit) for key, incarnation in self.incarnations.items()}

    def tell_together(self, events: list[Event]) -> None:
        """Write several events down before the orders of any are followed, as a supervisor in a hurry does."""
        self.journal += events
        for action in [action for event in events for action in self._step(event)]:
            self._perform(action)

    def tell(self, event: Event, *, most: int | None = None) -> tuple[Action, ...]:
        """Write an event down and follow the orders, or die after so many of them."""
        self.journal.append(event)
        over = self.state.phase.is_final
        actions = self._step(event)
        if over:
            return actions
        for action in actions[:most]:
            self._perform(action)
        if most is not None:
            self.die()
        return actions

    def _step(self, event: Event) -> tuple[Action, ...]:
        """What an event makes of the run, and what to do about it; checked for sense."""
        before = self.state
        self.state, actions = step(self.plan, before, event)
        if before.phase.is_final:
            assert self.ending
            again = (Finish(self.ending),) if isinstance(event, SupervisorReturned) else ()
            assert (self.state, actions) == (before, again)
            return actions
        self._heed(event)
        self._check_state()
        for action in actions:
            self._check(action)
        assert self.state.phase.is_final == (self.ending is not None)
        return actions

    def wish(self, *, force: bool = False, preempted: bool = False) -> StopRequested:
        """The user, or another cause, requests an end."""
        self._clock += 1.0
        return StopRequested(force, self._clock, preempted)

    def step(self) -> FirstStepTaken:
        """A replica has taken a step."""
        self._clock += 1.0
        return FirstStepTaken(self.state.attempt, self.plan.replicas[0].id, 1, self._clock)

    def last_incarnation(self, replica: ReplicaId, attempt: int) -> Key:
        """The last incarnation of a replica in an attempt."""
        return max(key for key in self.incarnations if key[:2] == (replica, attempt))

    def end(self, incarnation: Incarnation, exit_: Exit) -> None:
        """A process ends like this."""
        self._clock += 1.0
        incarnation.exit, incarnation.at_seconds = exit_, self._clock
        if incarnation.key in self._watched:
            self.tidings.append(incarnation.tidings()[-1])

    def make_room(self) -> None:
        """Another run ends; waiting runs are notified."""
        self.has_room = True
        if self._waiting is not None:
            # An engine tells these two in their order; a run that is not notified yet need not wait.
            self.tidings = [event for event in self.tidings if not isinstance(event, AttemptDelayed)]
            self.tidings.append(RoomFound(self._waiting))
            self._waiting = None

    def alive(self) -> list[Incarnation]:
        """Every process there is."""
        return [incarnation for incarnation in self.incarnations.values() if incarnation.exit is None]

    def _heed(self, event: Event) -> None:
        match event:
            case StopRequested():
                self.preempted = event.preempted if self.asked_at is None else self.preempted
                self.asked_at = event.at_seconds if self.asked_at is None else self.asked_at
                self.forced |= event.force
            case TimerFired(timer="run"):
                self.last_attempt = self.state.attempt if self.last_attempt is None else self.last_attempt

    def _check_state(self) -> None:
        state = self.state
        assert state == state.with_replicas(state.replicas), "the counts are right"
        if state.phase is Phase.STARTING and not state.ending:
            assert state.waiting
        if state.phase is Phase.RUNNING and not state.ending:
            waiting = [each for each in state.replicas.values() if each.phase in (Phase.PENDING, Phase.STARTING)]
            assert all(each.incarnation for each in waiting), "only restarting replicas are waited for"
        left = [name for name in state.reviving if not state.replicas[name].phase.is_final]
        assert left or state.holding or state.ending or not state.reviving, "a replica that can restart does"
        if state.phase is Phase.STARTING:
            assert not state.waits
        if state.lingering:
            assert state.ending
            assert state.ending.phase is Phase.FINISHED

    def _check(self, action: Action) -> None:
        match action:
            case Prepare():
                assert self.asked_at is None
                assert self.state.phase is Phase.BUILDING
                assert [each.replica for each in self.alive()] in ([], [action.helper]), "one after the other"
            case Start():
                assert self.asked_at is None
                assert not self.state.any_helper_left
                assert self.last_attempt in (None, action.attempt)
                assert self.state.attempt == action.attempt
            case TakeStacks():
                assert self.asked_at is None
                assert self.state.stacks_due
                assert self.state.ending
            case Serve():
                assert self.asked_at is None
                assert self.plan.tensorboard is not False
                assert self.state.serves_tensorboard
            case Stop(incarnations=(stopped,)) if stopped.replica == TENSORBOARD:
                assert stopped.attempt == 0
                assert (action.grace_seconds == 0) == self.forced
                assert self.state.serves_tensorboard
                assert not [incarnation for incarnation in self.alive() if incarnation.replica != TENSORBOARD], (
                    "it goes last"
                )
            case Stop():
                names = [each.replica for each in action.incarnations]
                assert names
                assert all(
                    each.attempt == (0 if each.replica.is_helper else self.state.attempt)
                    for each in action.incarnations
                )
                assert (action.grace_seconds == 0) == (self.forced or self._nobody_can_save())
                assert not any(self.state.all_states[name].phase.is_final for name in names)
                assert not any(name.role == "ps" for name in names) or not self._ps_are_needed()
            case SetTimer():
                assert action.seconds >= 0
            case ChooseDelay():
                assert self.state.phase is Phase.RESTARTING or self.state.holding
                assert action.about_seconds > 0
            case Finish():
                assert self.ending is None, "a run ends once"
                assert not self.alive()
                assert list(self.state.replicas) == [replica.id for replica in self.plan.replicas]
                assert all(each.phase.is_final for each in self.state.all_states.values())
                self.ending = action.ending

    def _nobody_can_save(self) -> bool:
        """Whether a replica of a mirrored line has failed: the others do not end at TERM and cannot save."""
        cause = self.state.ending.cause if self.state.ending else None
        fell = self.state.ending and self.state.ending.phase is Phase.FAILED and cause and cause.replica
        if not cause or not fell or self.state.out_of_time or self.plan.replicas_of("ps"):
            return False
        told = cause.failure != "preempted" and not (cause.replica and cause.replica.is_helper)
        return self.plan.framework in ("tensorflow", "jax") and told and not self.plan.timeouts.is_grace_set

    def _ps_are_needed(self) -> bool:
        """Return whether a training replica has to end first, if the run is a success."""
        ending = self.state.ending
        succeeded = ending is not None and ending.phase is Phase.FINISHED
        left = (name for name, each in self.state.replicas.items() if not each.phase.is_final)
        return succeeded and not self.forced and any(name.role in COMPUTING for name in left)

    def _perform(self, action: Action) -> None:
        match action:
            case Prepare():
                if self.breaks == "place":
                    self.breaks = None
                    self.tidings.append(EngineFailed(self.state.attempt, "nowhere to go"))
                else:
                    self._watch(self._incarnation(action.helper, 0, action.incarnation))
            case Start():
                self._start(action)
            case Stop():
                for each in action.incarnations:
                    self._stop((each.replica, each.attempt, each.incarnation))
            case TakeStacks():
                keys = [(each.replica, each.attempt, each.incarnation) for each in action.incarnations]
                for incarnation in (self.incarnations[key] for key in keys if key in self.incarnations):
                    self._watch(incarnation)
                names = (each.replica for each in action.incarnations)
                blamed = next((name for name in names if name.role != "evaluator"), None)
                self.tidings.append(StacksTaken(action.attempt, blamed, "it sleeps"))
            case Serve():
                incarnation = self._incarnation(TENSORBOARD, 0, action.incarnation)
                self._watch(incarnation)
                if incarnation.exit is None:
                    self.tidings.append(TensorBoardServed("http://here:2/"))
            case SetTimer():
                self.timers.append(TimerFired(action.timer, action.attempt))
            case ChooseDelay():
                self.tidings.append(DelayChosen(action.attempt, action.about_seconds))

    def _incarnation(self, *key: *Key) -> Incarnation:
        return self.incarnations.setdefault(key, Incarnation(*key))

    def _start(self, action: Start) -> None:
        attempt = action.attempt
        begun = any(each == attempt and not name.is_helper for name, each, _ in self.incarnations)
        if not self.has_room and not begun:
            self._placed.discard(attempt)
            self._waiting = attempt
            if self.state.waits != "for room":
                self.tidings.append(AttemptDelayed(attempt, "for room"))
            return
        where, self.breaks = self.breaks, None
        if attempt not in self._placed:
            if where == "place":
                self.tidings.append(EngineFailed(attempt, "nowhere to go"))
                return
            self._placed.add(attempt)
            self.tell(AttemptPlaced(attempt, ("here:1",) * len(self.plan.replicas)))
        if where == "start":
            self.tidings.append(EngineFailed(attempt, "no folder"))
        for replica in self.plan.replicas[: 1 if where == "start" else None]:
            self._watch(self._incarnation(replica.id, attempt, action.incarnations.get(replica.id, 0)))

    def _stop(self, key: Key) -> None:
        incarnation = self.incarnations.get(key)
        if incarnation is None:
            incarnation = self._incarnation(*key)
            self.end(incarnation, Exit(message="it was never started"))
        incarnation.asked |= incarnation.exit is None
        self._watch(incarnation)

    def _watch(self, incarnation: Incarnation) -> None:
        """Tell what has become of it so far, and from now on."""
        if incarnation.key not in self._watched:
            self._watched.add(incarnation.key)
            self.tidings += incarnation.tidings()
