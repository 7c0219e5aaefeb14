"""One incarnation of a replica as a process of this machine, with its keeper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.local.trace import Trace, has_begun, read_trace
from drumline.engine.notes import End
from drumline.engine.tracker import Tracked
from drumline.run.event import EngineWarned, Event, ReplicaStarted
from drumline.run.incarnation import Incarnation
from drumline.run.traces import TRACE

if TYPE_CHECKING:
    from asyncio import Future, Task


class LocalReplica(Tracked):
    """One incarnation, its keeper as this session watches it, and its trace."""

    def __init__(self, incarnation: Incarnation, folder: Path) -> None:
        super().__init__(incarnation, folder)
        self.path = folder / TRACE
        self.trace = Trace()  # as last read
        self.keeper: int | None = None
        self.watched: int | None = None  # a pidfd, readable when the keeper has ended
        self.is_kept = False  # its keeper is watched, or has ended
        self.is_stopped = False
        self.task: Task[None] | None = None  # the task that orders its keeper
        self.begins: Future[bool] | None = None  # whether its keeper began its work

    @property
    def has_begun(self) -> bool:
        """Return whether its start was ordered, in this session or an earlier one; there will be no other."""
        return self.task is not None or has_begun(self.path)

    def read(self) -> Trace:
        """Read its trace."""
        self.trace = read_trace(self.path)
        return self.trace

    def resolve_start(self, *, is_begun: bool) -> bool:
        """Give the task that starts it the result of its keeper; return whether a task was waiting."""
        if self.begins is None or self.begins.done():
            return False
        self.begins.set_result(is_begun)
        return True

    def describe_start(self) -> Iterator[Event]:
        """Yield its start, and a warning if it has no memory limit although it should."""
        which, trace = self.id, self.trace
        yield ReplicaStarted(which.replica, which.attempt, which.incarnation, trace.pid, trace.note)
        if trace.unlimited:
            message = f"{which.replica} runs without its memory limit: {trace.unlimited}"
            yield EngineWarned(which.attempt, message)

    def read_end(self) -> End | None:
        """Return None: the end is read from the trace when its keeper is adopted."""
        return None

    def record_end(self, end: End) -> None:
        """Do nothing: its keeper has recorded the end."""
