"""What the machine orders: bare imperatives. Each may be given twice; the second time changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from drumline.plan.types import ReplicaId
from drumline.run.state import Ending


@dataclass(frozen=True, slots=True)
class Start:
    """Place and start the whole line as this attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop these replicas: TERM, the grace, KILL, the whole tree of each."""

    replicas: tuple[ReplicaId, ...]
    attempt: int
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Say TimerFired after so long, unless the attempt is over by then; `run` counts from the run's first event."""

    timer: str
    attempt: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ChooseDelay:
    """Choose how long the next attempt waits, about so long, and say DelayChosen."""

    attempt: int
    about_seconds: float


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over; nothing of it is alive."""

    ending: Ending


Action = Start | Stop | SetTimer | ChooseDelay | Finish
