"""One life of a replica, and where it leaves its traces."""

from __future__ import annotations

from pathlib import Path

from drumline.engine.local.trace import read_trace
from drumline.plan.types import ReplicaId
from drumline.record import Record
from drumline.run.traces import TRACE, trace_dir
from drumline.runtime.lock import is_locked

MARK = "DRUMLINE_MARK"


class Life(Record):
    """One life of a replica."""

    replica: ReplicaId
    attempt: int
    incarnation: int = 0

    def folder(self, run_dir: Path) -> Path:
        """Where it is written down what becomes of it."""
        return run_dir / trace_dir(self.replica, self.attempt, self.incarnation)

    def mark(self, run_dir: Path) -> str:
        """What everybody who belongs to it has in their environment."""
        return f"{run_dir}/{trace_dir(self.replica, self.attempt, self.incarnation)}"

    def has_begun(self, run_dir: Path) -> bool:
        """Whether it was begun, by whomever; it will not be again."""
        path = self.folder(run_dir) / TRACE
        return is_locked(path) or read_trace(path).keeper is not None
