"""The traces of an incarnation."""

from __future__ import annotations

from itertools import count, takewhile
from pathlib import Path

from drumline.plan.types import ReplicaId
from drumline.record import Record
from drumline.run.traces import trace_dir


class IncarnationTraces(Record):
    """The folder of an incarnation, and when it started and ended."""

    folder: Path
    started_at: float
    ended_at: float | None = None  # None while it runs


def incarnation_dirs(run_dir: Path, replica: ReplicaId, attempt: int) -> list[Path]:
    """Return the folders of all incarnations of a replica in an attempt, in order."""
    return list(takewhile(Path.is_dir, (run_dir / trace_dir(replica, attempt, number) for number in count())))
