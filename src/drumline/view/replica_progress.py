"""The progress of a replica."""

from __future__ import annotations

from drumline.record import Record
from drumline.run.pace import Pace
from drumline.run.progress import UNKNOWN, Progress


class ReplicaProgress(Record):
    """The progress of a replica, when it was reported, and the remaining time at the current pace."""

    progress: Progress = UNKNOWN
    at: float | None = None  # UTC, seconds
    pace: Pace | None = None  # measured
    steps_per_second: float | None = None  # of its bar, else measured
    eta_seconds: float | None = None  # to the end of the last epoch
    steps_eta_seconds: float | None = None  # to the last of its steps
    is_reported: bool = False
    is_global: bool = False  # its steps are those of the whole training
    is_behind: bool = False
