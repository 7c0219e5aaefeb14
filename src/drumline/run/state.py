"""Where a run stands: one frozen value, made only by `run.fold`."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Self

from drumline.plan.types import TENSORBOARD, ReplicaId
from drumline.record import Record
from drumline.run.event import (
    Cause,
    Event,
    Evidence,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    ReplicaWaits,
    StepsStalled,
    TensorBoardServed,
    TimerFired,
)
from drumline.run.incarnation import Incarnation


class Phase(StrEnum):
    """A run's or a replica's state, as the user reads it."""

    CREATED = "CREATED"
    BUILDING = "BUILDING"
    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen."""
        return self in _FINAL


_FINAL = frozenset((Phase.FINISHED, Phase.FAILED, Phase.KILLED))
_WAITING = frozenset((Phase.PENDING, Phase.STARTING))
NOT_STARTED = (Phase.CREATED, Phase.PENDING, Phase.STARTING)


class ReplicaState(Record):
    """Where a replica stands in the current attempt."""

    phase: Phase = Phase.PENDING
    incarnation: int = 0
    exit: Exit | None = None
    reason: str = ""
    at_seconds: float = 0.0
    evidence: Evidence | None = None
    waits: str = ""  # for what, until it starts, where its engine knows


class Ending(Record):
    """What the run, or this attempt of it, is coming to, and why."""

    phase: Phase
    reason: str = ""
    cause: Cause | None = None
    at_seconds: float | None = None  # when what decided it happened; None if it stands whatever else is told


class Revival(Record):
    """Some of the line that start again while the others live on: who, why, and which restart of its class it is."""

    replicas: tuple[ReplicaId, ...]
    cause: Cause
    number: int
    budget: int
    at_seconds: float  # when the cause fell


class RunState(Record):
    """A run as the fold of its events and decisions."""

    phase: Phase = Phase.CREATED
    attempt: int = 0
    replicas: Mapping[ReplicaId, ReplicaState] = MappingProxyType({})
    left: Mapping[str, int] = MappingProxyType({})  # how many of each role have not ended
    waiting: int = 0  # how many have not started
    helpers: Mapping[ReplicaId, ReplicaState] = MappingProxyType({})  # who work before the first attempt
    tensorboard: ReplicaState | None = None  # beside the line, whatever the attempt; None while nobody wants it
    tensorboard_address: str = ""  # once it answers
    ending: Ending | None = None  # decided; what is left of the attempt is being stopped
    verdict: str = ""  # why, in the words that were recorded
    stacks_due: bool = False  # hung; nobody is stopped before everybody's stacks are saved
    stalled: StepsStalled | None = None  # it takes no steps
    stepped: bool = False  # this attempt has taken a step, as far as anybody can tell
    is_old: bool = False  # it has run so long that it may have taken steps which nobody saw
    lingering: bool = False  # succeeded; the others may end by themselves for a while
    forced: bool = False  # the user wants no grace
    out_of_time: bool = False  # the run's time limit is over
    causes: tuple[Cause, ...] = ()  # why each attempt before ended
    verdicts: tuple[str, ...] = ()  # the same in the words that were recorded
    named: tuple[Cause, ...] = ()  # the recorded cause of a run that fails for good; a second one corrects the first
    restarts: Mapping[str, int] = MappingProxyType({})  # spent, by class of failure
    delay_seconds: float | None = None  # before the next attempt, or before some return, once it is chosen
    revivals: tuple[Revival, ...] = ()
    reviving: tuple[ReplicaId, ...] = ()  # who are to return, once all of them have ended, unless it all ends
    holding: bool = False  # they wait for a delay
    forgiven: tuple[ReplicaId, ...] = ()  # whose end the others survived
    resumes: int = 0  # how often its user went on with it after its end
    waits: str = ""  # for what the attempt waits, and behind whom, until it is placed
    warnings: tuple[str, ...] = ()
    replica_ids: tuple[ReplicaId, ...] = ()  # of the gang, in the order of the plan
    helper_ids: tuple[ReplicaId, ...] = ()  # of what works before the first attempt

    @property
    def known_cause(self) -> Cause | None:
        """The cause of a run that has failed or fails for good, as soon as it is recorded."""
        if self.ending is None or self.ending.phase is not Phase.FAILED:
            return None
        if self.named:
            return self.named[-1]
        return self.ending.cause if self.phase is Phase.FAILED else None

    @property
    def any_left(self) -> bool:
        """Whether somebody of the line, or who helps it, may still have a process: nobody has seen all ends."""
        return any(self.left.values()) or self.any_helper_left

    @property
    def any_helper_left(self) -> bool:
        """Whether a helper is not done."""
        return any(not helper.phase.is_final for helper in self.helpers.values())

    def state_of(self, name: ReplicaId) -> ReplicaState | None:
        """Where a replica or a helper stands, if it is one of this run's."""
        if name == TENSORBOARD:
            return self.tensorboard
        return (self.helpers if name.is_helper else self.replicas).get(name)

    @property
    def all_states(self) -> dict[ReplicaId, ReplicaState]:
        """Where the helpers and the replicas stand."""
        beside = {TENSORBOARD: self.tensorboard} if self.tensorboard else {}
        return {**self.helpers, **self.replicas, **beside}

    @property
    def incarnations(self) -> dict[ReplicaId, int]:
        """Who of the line is not in its first life in this attempt."""
        return {name: each.incarnation for name, each in self.replicas.items() if each.incarnation}

    def current(self, names: Iterable[ReplicaId]) -> tuple[Incarnation, ...]:
        """Return the incarnations of these replicas in this attempt."""
        return tuple(Incarnation(name, self.attempt, self.replicas[name].incarnation) for name in names)

    @property
    def serves_tensorboard(self) -> bool:
        """Whether TensorBoard may have a process."""
        return self.tensorboard is not None and not self.tensorboard.phase.is_final

    def with_warning(self, warning: str) -> Self:
        """The same run with something to tell its user; told twice, it is one thing."""
        return self.replace(warnings=tuple(dict.fromkeys((*self.warnings, warning))))

    def with_helper(self, name: ReplicaId, now: ReplicaState) -> Self:
        """The same run with one helper changed."""
        if name == TENSORBOARD:
            return self.replace(tensorboard=now)
        return self.replace(helpers={**self.helpers, name: now})

    def with_state(self, name: ReplicaId, now: ReplicaState) -> Self:
        """Return the same run with one helper or replica changed."""
        return self.with_helper(name, now) if name.is_helper else self.with_replica(name, now)

    def with_replica(self, name: ReplicaId, now: ReplicaState) -> Self:
        """The same run with one replica changed; the counts are kept, for thousands ask at every event."""
        before = self.replicas[name]
        ended = now.phase.is_final - before.phase.is_final
        waiting = (now.phase in _WAITING) - (before.phase in _WAITING)
        return self.replace(
            replicas={**self.replicas, name: now},
            left={**self.left, name.role: self.left[name.role] - ended} if ended else self.left,
            waiting=self.waiting + waiting,
        )

    def with_replicas(self, replicas: Mapping[ReplicaId, ReplicaState]) -> Self:
        """The same run with all replicas new, and counted anew."""
        left = {name.role: 0 for name in replicas}
        for name, replica in replicas.items():
            left[name.role] += not replica.phase.is_final
        waiting = sum(replica.phase in _WAITING for replica in replicas.values())
        return self.replace(replicas=replicas, left=left, waiting=waiting)


def is_past(state: RunState, event: Event) -> bool:
    """Whether it is about an attempt or a life that is over; the run's own time limit is about all of them."""
    match event:
        case ReplicaStarted() | ReplicaWaits() | ReplicaExited():
            replica = state.state_of(event.replica)
            if replica is None or replica.phase.is_final or event.incarnation < replica.incarnation:
                return True
            if event.replica.is_helper:  # it knows no attempts, and lives once in each life of the run
                return event.incarnation > replica.incarnation
            return event.attempt != state.attempt or state.phase is Phase.RESTARTING
        case TensorBoardServed():
            return not state.serves_tensorboard
        case TimerFired(timer="run"):
            return False
        case _:
            return getattr(event, "attempt", state.attempt) != state.attempt
