"""What can happen to a run: facts, in the past tense, each with the identity of what it is about.

Times in events are seconds of one clock that never goes back; when something is shown, the journal's own time is.
"""

from __future__ import annotations

from dataclasses import dataclass

from drumline.plan.types import ReplicaId


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: its exit code, or the signal that ended it, or neither if nobody saw it end."""

    code: int | None = None
    signal: int | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ended as a success does."""
        return self.code == 0

    @property
    def seen(self) -> bool:
        """Whether somebody saw it end."""
        return self.code is not None or self.signal is not None


@dataclass(frozen=True, slots=True)
class RunAccepted:
    """The run has a number, a plan and a supervisor."""


@dataclass(frozen=True, slots=True)
class AttemptPlaced:
    """Every replica of this attempt has its address."""

    attempt: int
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplicaStarted:
    """A replica's process runs."""

    replica: ReplicaId
    attempt: int
    incarnation: int = 0
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class ReplicaExited:
    """A replica has ended, and nothing of it is left."""

    replica: ReplicaId
    attempt: int
    incarnation: int
    exit: Exit
    at_seconds: float


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The user wants the run to end."""

    force: bool = False


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A time that the machine asked for is over."""

    timer: str
    attempt: int


@dataclass(frozen=True, slots=True)
class DelayChosen:
    """How long the next attempt waits; chosen by chance, so recorded."""

    attempt: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """The engine could not do what was asked of it."""

    attempt: int
    message: str


@dataclass(frozen=True, slots=True)
class SupervisorReturned:
    """A new supervisor took the run up again."""


Event = (
    RunAccepted
    | AttemptPlaced
    | ReplicaStarted
    | ReplicaExited
    | StopRequested
    | TimerFired
    | DelayChosen
    | EngineFailed
    | SupervisorReturned
)
