"""The state of a run: one frozen value, made by `run.fold`."""

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
    """The phase of a run or a replica, as it is shown."""

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
        """Return whether the run or replica is over."""
        return self in _FINAL


_FINAL = frozenset((Phase.FINISHED, Phase.FAILED, Phase.KILLED))
_WAITING = frozenset((Phase.PENDING, Phase.STARTING))
NOT_STARTED = (Phase.CREATED, Phase.PENDING, Phase.STARTING)


class ReplicaState(Record):
    """The state of a replica in the current attempt."""

    phase: Phase = Phase.PENDING
    incarnation: int = 0
    exit: Exit | None = None
    reason: str = ""
    at_seconds: float = 0.0
    evidence: Evidence | None = None
    waits: str = ""  # why it has not started yet, if the engine knows; empty after the start


class Ending(Record):
    """The decided outcome of the run or the attempt, and why."""

    phase: Phase
    reason: str = ""
    cause: Cause | None = None
    at_seconds: float | None = None  # when the deciding event happened; None if no later report can change it


class Revival(Record):
    """A restart of some replicas while the others continue."""

    replicas: tuple[ReplicaId, ...]
    cause: Cause
    number: int  # number of this restart in its failure class, from 1
    budget: int  # number of restarts that the class allows
    at_seconds: float  # when the replica of the cause failed


class RunState(Record):
    """The state of a run after its events and decisions."""

    phase: Phase = Phase.CREATED
    attempt: int = 0
    replicas: Mapping[ReplicaId, ReplicaState] = MappingProxyType({})
    left: Mapping[str, int] = MappingProxyType({})  # number of replicas of each role that have not ended
    waiting: int = 0  # number of replicas that have not started
    helpers: Mapping[ReplicaId, ReplicaState] = MappingProxyType({})  # without TensorBoard
    tensorboard: ReplicaState | None = None  # independent of attempts; None before it is requested
    tensorboard_address: str = ""  # while TensorBoard can be reached
    ending: Ending | None = None  # the decided outcome; the remaining replicas are being stopped
    verdict: str = ""  # the recorded message of the ending
    stacks_due: bool = False  # the attempt hung; no replica is stopped before all stacks are saved
    stalled: StepsStalled | None = None  # the stall that was detected, until a step is taken
    stepped: bool = False  # a step of this attempt was seen
    may_have_stepped: bool = False  # it has run long enough to have taken steps that were not seen
    lingering: bool = False  # the run has succeeded; the remaining replicas get time to end by themselves
    forced: bool = False  # the user requested a stop without a grace
    out_of_time: bool = False  # the run's time limit is over
    causes: tuple[Cause, ...] = ()  # of earlier attempts
    verdicts: tuple[str, ...] = ()  # the recorded messages of earlier attempts
    named: tuple[Cause, ...] = ()  # the recorded cause of a run that fails for good; a second one corrects the first
    restarts: Mapping[str, int] = MappingProxyType({})  # number of restarts so far, by failure class
    delay_seconds: float | None = None  # the chosen delay before the next attempt or revival
    revivals: tuple[Revival, ...] = ()
    reviving: tuple[ReplicaId, ...] = ()  # these replicas restart when all of them have ended
    holding: bool = False  # the replicas in `reviving` wait for a delay
    forgiven: tuple[ReplicaId, ...] = ()  # the exits of these replicas did not end the attempt
    resumes: int = 0  # how often the user resumed the run
    waits: str = ""  # why the attempt is not placed yet; empty when it is
    warnings: tuple[str, ...] = ()
    replica_ids: tuple[ReplicaId, ...] = ()  # of the gang, in the order of the plan
    helper_ids: tuple[ReplicaId, ...] = ()

    @property
    def known_cause(self) -> Cause | None:
        """Return the cause of a run that has failed or fails for good, when it is recorded."""
        if self.ending is None or self.ending.phase is not Phase.FAILED:
            return None
        if self.named:
            return self.named[-1]
        return self.ending.cause if self.phase is Phase.FAILED else None

    @property
    def any_left(self) -> bool:
        """Return whether a replica or a helper may still have a process."""
        return any(self.left.values()) or self.any_helper_left

    @property
    def any_helper_left(self) -> bool:
        """Return whether a helper has not ended."""
        return any(not helper.phase.is_final for helper in self.helpers.values())

    def state_of(self, name: ReplicaId) -> ReplicaState | None:
        """Return the state of a replica or helper; None if the run has no replica or helper with this id."""
        if name == TENSORBOARD:
            return self.tensorboard
        return (self.helpers if name.is_helper else self.replicas).get(name)

    @property
    def all_states(self) -> dict[ReplicaId, ReplicaState]:
        """Return the states of all helpers and replicas."""
        beside = {TENSORBOARD: self.tensorboard} if self.tensorboard else {}
        return {**self.helpers, **self.replicas, **beside}

    @property
    def incarnations(self) -> dict[ReplicaId, int]:
        """Return the incarnations of this attempt that are not 0."""
        return {name: each.incarnation for name, each in self.replicas.items() if each.incarnation}

    def current(self, names: Iterable[ReplicaId]) -> tuple[Incarnation, ...]:
        """Return the incarnations of these replicas in this attempt."""
        return tuple(Incarnation(name, self.attempt, self.replicas[name].incarnation) for name in names)

    @property
    def serves_tensorboard(self) -> bool:
        """Return whether TensorBoard may have a process."""
        return self.tensorboard is not None and not self.tensorboard.phase.is_final

    def with_warning(self, warning: str) -> Self:
        """Return the state with a warning; each warning is kept once."""
        return self.replace(warnings=tuple(dict.fromkeys((*self.warnings, warning))))

    def with_helper(self, name: ReplicaId, now: ReplicaState) -> Self:
        """Return the state with one helper changed."""
        if name == TENSORBOARD:
            return self.replace(tensorboard=now)
        return self.replace(helpers={**self.helpers, name: now})

    def with_state(self, name: ReplicaId, now: ReplicaState) -> Self:
        """Return the state with one helper or replica changed."""
        return self.with_helper(name, now) if name.is_helper else self.with_replica(name, now)

    def with_replica(self, name: ReplicaId, now: ReplicaState) -> Self:
        """Return the state with one replica changed; its counts are updated without reading the other replicas."""
        before = self.replicas[name]
        ended = now.phase.is_final - before.phase.is_final
        waiting = (now.phase in _WAITING) - (before.phase in _WAITING)
        return self.replace(
            replicas={**self.replicas, name: now},
            left={**self.left, name.role: self.left[name.role] - ended} if ended else self.left,
            waiting=self.waiting + waiting,
        )

    def with_replicas(self, replicas: Mapping[ReplicaId, ReplicaState]) -> Self:
        """Return the state with these replicas."""
        left = {name.role: 0 for name in replicas}
        for name, replica in replicas.items():
            left[name.role] += not replica.phase.is_final
        waiting = sum(replica.phase in _WAITING for replica in replicas.values())
        return self.replace(replicas=replicas, left=left, waiting=waiting)


def is_past(state: RunState, event: Event) -> bool:
    """Return whether an event is about an attempt or incarnation that is over."""
    match event:
        case ReplicaStarted() | ReplicaWaits() | ReplicaExited():
            replica = state.state_of(event.replica)
            if replica is None or replica.phase.is_final or event.incarnation < replica.incarnation:
                return True
            if event.replica.is_helper:  # a helper belongs to no attempt, and runs once per resume
                return event.incarnation > replica.incarnation
            return event.attempt != state.attempt or state.phase is Phase.RESTARTING
        case TensorBoardServed():
            return not state.serves_tensorboard
        case TimerFired(timer="run"):
            return False
        case _:
            return getattr(event, "attempt", state.attempt) != state.attempt
