"""Where a run stands: one frozen value, made only by `machine.step`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from drumline.plan.types import ReplicaId
from drumline.run.event import Exit


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
        return self in (Phase.FINISHED, Phase.FAILED, Phase.KILLED)


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """Where a replica stands in the current attempt."""

    phase: Phase = Phase.PENDING
    incarnation: int = 0
    exit: Exit | None = None
    reason: str = ""
    at_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Cause:
    """Who fell first, how, and what kind of failure that is."""

    replica: ReplicaId | None
    attempt: int
    exit: Exit
    failure: str  # a class of failure, as restart budgets name it
    reason: str


@dataclass(frozen=True, slots=True)
class Ending:
    """What the run, or this attempt of it, is coming to, and why."""

    phase: Phase
    reason: str = ""
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class RunState:
    """A run as the fold of its events."""

    phase: Phase = Phase.CREATED
    attempt: int = 0
    replicas: Mapping[ReplicaId, ReplicaState] = field(default_factory=dict)
    ending: Ending | None = None  # decided; what is left of the attempt is being stopped
    lingering: bool = False  # succeeded; the others may end by themselves for a while
    causes: tuple[Cause, ...] = ()  # why each attempt before ended
    restarts: Mapping[str, int] = field(default_factory=dict)  # spent, by class of failure
    delay_seconds: float = 0.0
    warnings: tuple[str, ...] = ()
