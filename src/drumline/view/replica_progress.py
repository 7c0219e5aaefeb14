"""The progress of a replica."""

from __future__ import annotations

from drumline.record import Record
from drumline.run.pace import Pace
from drumline.run.progress import UNKNOWN, Progress


class ReplicaProgress(Record):
    """The progress of a replica, and the remaining time at the current pace."""

    progress: Progress = UNKNOWN
    at: float | None = None  # when it was reported or printed; UTC, seconds
    pace: Pace | None = None  # measured
    steps_per_second: float | None = None  # from the progress bar, else measured
    eta_seconds: float | None = None  # until the end of the last epoch
    steps_eta_seconds: float | None = None  # until the last of `progress.steps`
    is_reported: bool = False  # the script reports its steps
    is_global: bool = False  # steps are counted over the whole training, not per epoch
    is_behind: bool = False  # it is well behind the other replicas, or much slower
