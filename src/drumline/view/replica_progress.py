"""How far a replica is, as a value."""

from __future__ import annotations

from drumline.record import Record
from drumline.run.pace import Pace
from drumline.run.progress import UNKNOWN, Progress


class ReplicaProgress(Record):
    """How far a replica is, when it said so, and how long it will take if it goes on like that."""

    progress: Progress = UNKNOWN
    at: float | None = None  # UTC, seconds
    pace: Pace | None = None  # as it is now, if that was measured
    steps_per_second: float | None = None  # as its bar has it, else as it was measured
    eta_seconds: float | None = None  # to the end of the last epoch
    steps_eta_seconds: float | None = None  # to the last of its steps
    is_reported: bool = False
    is_global: bool = False  # its steps are those of the whole training
    is_behind: bool = False
