"""A simulated environment of the state machine: an engine, clocks, and supervisors that are killed and return.

Replicas end at any time; their events are delivered late, in any order and twice. Every action of the state machine is
checked before it is performed.
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

    def events(self) -> list[Event]:
        """Return all its events so far."""
        started = ReplicaStarted(*self.key)
        return [started] if self.exit is None else [started, ReplicaExited(*self.key, self.exit, self.at_seconds)]

    @property
    def key(self) -> Key:
        """Return its identity."""
        return self.replica, self.attempt, self.incarnation


class SimulatedRun:
    """One run of a plan, and everything outside the state machine that it depends on."""

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
        self.start_supervisor()

    def _begin(self) -> None:
        """Reset what was decided and requested."""
        self.first_attempt = self.state.attempt
        self.ending: Ending | None = None
        self.asked_at: float | None = None  # when an end was first requested
        self.preempted = False  # the stop was not requested by the user
        self.forced = False
        self.last_attempt: int | None = None  # when the time limit of the run has passed

    def resume(self) -> None:
        """Resume a run that has ended, with a new supervisor; a run that has not ended is unchanged."""
        before = self.state
        if before.phase not in (Phase.FAILED, Phase.KILLED):
            assert step(self.plan, before, ResumeRequested()) == (before, ())
            return
        self.start_supervisor()
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

    def start_supervisor(self) -> None:
        """Start a supervisor, which has only the journal."""
        self.supervised = True
        self.undelivered: list[Event] = []  # happened, and not delivered yet
        self.timers: list[TimerFired] = []
        self._watched: set[Key] = set()
        self._waiting: int | None = None  # the attempt that waits for resources

    def kill_supervisor(self) -> None:
        """End the supervisor; everything that is not in the journal is lost."""
        self.start_supervisor()
        self.supervised = False

    def return_supervisor(self) -> None:
        """Start another supervisor from the journal; performing its actions twice makes no difference."""
        self.start_supervisor()
        assert fold(self.plan, self.journal) == self.state
        breaks = self.breaks
        actions = self.deliver(SupervisorReturned())
        before = {key: (incarnation.asked, incarnation.exit) for key, incarnation in self.incarnations.items()}
        self.breaks = breaks
        for action in actions:
            self._perform(action)
        assert before == {key: (incarnation.asked, incarnation.exit) for key, incarnation in self.incarnations.items()}

    def deliver_together(self, events: list[Event]) -> None:
        """Append several events to the journal before their actions are performed."""
        self.journal += events
        for action in [action for event in events for action in self._step(event)]:
            self._perform(action)

    def deliver(self, event: Event, *, most: int | None = None) -> tuple[Action, ...]:
        """Append an event to the journal and perform its actions; with `most`, only so many, and end the supervisor."""
        self.journal.append(event)
        over = self.state.phase.is_final
        actions = self._step(event)
        if over:
            return actions
        for action in actions[:most]:
            self._perform(action)
        if most is not None:
            self.kill_supervisor()
        return actions

    def _step(self, event: Event) -> tuple[Action, ...]:
        """Apply an event, and return its actions; both are checked."""
        before = self.state
        self.state, actions = step(self.plan, before, event)
        if before.phase.is_final:
            assert self.ending
            again = (Finish(self.ending),) if isinstance(event, SupervisorReturned) else ()
            assert (self.state, actions) == (before, again)
            return actions
        self._note(event)
        self._check_state()
        for action in actions:
            self._check(action)
        assert self.state.phase.is_final == (self.ending is not None)
        return actions

    def request_stop(self, *, force: bool = False, preempted: bool = False) -> StopRequested:
        """Return a stop request by the user, or of a preemption."""
        self._clock += 1.0
        return StopRequested(force, self._clock, preempted)

    def step(self) -> FirstStepTaken:
        """Return the event that a replica has taken a step."""
        self._clock += 1.0
        return FirstStepTaken(self.state.attempt, self.plan.replicas[0].id, 1, self._clock)

    def last_incarnation(self, replica: ReplicaId, attempt: int) -> Key:
        """Return the last incarnation of a replica in an attempt."""
        return max(key for key in self.incarnations if key[:2] == (replica, attempt))

    def end(self, incarnation: Incarnation, exit_: Exit) -> None:
        """End a process with this status."""
        self._clock += 1.0
        incarnation.exit, incarnation.at_seconds = exit_, self._clock
        if incarnation.key in self._watched:
            self.undelivered.append(incarnation.events()[-1])

    def make_room(self) -> None:
        """Free resources, as if another run had ended; a waiting run is notified."""
        self.has_room = True
        if self._waiting is not None:
            # An engine reports these two in order; if the delay is not delivered yet, the run need not wait.
            self.undelivered = [event for event in self.undelivered if not isinstance(event, AttemptDelayed)]
            self.undelivered.append(RoomFound(self._waiting))
            self._waiting = None

    def alive(self) -> list[Incarnation]:
        """Return every process that has not ended."""
        return [incarnation for incarnation in self.incarnations.values() if incarnation.exit is None]

    def _note(self, event: Event) -> None:
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
                    "it is stopped last"
                )
            case Stop():
                names = [each.replica for each in action.incarnations]
                assert names
                assert all(
                    each.attempt == (0 if each.replica.is_helper else self.state.attempt)
                    for each in action.incarnations
                )
                assert (action.grace_seconds == 0) == (self.forced or self._is_checkpoint_impossible())
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

    def _is_checkpoint_impossible(self) -> bool:
        """Return whether a replica of a mirrored gang has failed: the others do not react to TERM and cannot save."""
        cause = self.state.ending.cause if self.state.ending else None
        failed = self.state.ending and self.state.ending.phase is Phase.FAILED and cause and cause.replica
        if not cause or not failed or self.state.out_of_time or self.plan.replicas_of("ps"):
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
                    self.undelivered.append(EngineFailed(self.state.attempt, "no place"))
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
                named = next((name for name in names if name.role != "evaluator"), None)
                self.undelivered.append(StacksTaken(action.attempt, named, "it sleeps"))
            case Serve():
                incarnation = self._incarnation(TENSORBOARD, 0, action.incarnation)
                self._watch(incarnation)
                if incarnation.exit is None:
                    self.undelivered.append(TensorBoardServed("http://here:2/"))
            case SetTimer():
                self.timers.append(TimerFired(action.timer, action.attempt))
            case ChooseDelay():
                self.undelivered.append(DelayChosen(action.attempt, action.about_seconds))

    def _incarnation(self, *key: *Key) -> Incarnation:
        return self.incarnations.setdefault(key, Incarnation(*key))

    def _start(self, action: Start) -> None:
        attempt = action.attempt
        started = any(each == attempt and not name.is_helper for name, each, _ in self.incarnations)
        if not self.has_room and not started:
            self._placed.discard(attempt)
            self._waiting = attempt
            if self.state.waits != "for room":
                self.undelivered.append(AttemptDelayed(attempt, "for room"))
            return
        where, self.breaks = self.breaks, None
        if attempt not in self._placed:
            if where == "place":
                self.undelivered.append(EngineFailed(attempt, "no place"))
                return
            self._placed.add(attempt)
            self.deliver(AttemptPlaced(attempt, ("here:1",) * len(self.plan.replicas)))
        if where == "start":
            self.undelivered.append(EngineFailed(attempt, "no folder"))
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
        """Report its events so far, and from now on."""
        if incarnation.key not in self._watched:
            self._watched.add(incarnation.key)
            self.undelivered += incarnation.events()
