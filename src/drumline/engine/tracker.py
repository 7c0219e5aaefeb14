"""Track the incarnations of one run's replicas, for all engines: report each start and end once, and ends in order.

The tracker or the replica's keeper records an end before it is reported, so that the next supervisor reports the same
end.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from drumline.engine.notes import End, note_end, read_end
from drumline.engine.protocol import ReportEvent
from drumline.run.event import Event, Exit, ReplicaExited, ReplicaStarted
from drumline.run.incarnation import Incarnation

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

NEVER_STARTED = Exit(message="it was never started")
LONGEST_HOLD_SECONDS = 60.0


class Tracked:
    """One incarnation, and which of its events were reported; engines add data, and how its end is recorded."""

    note = ""  # for the report of its start, if only its end is known

    def __init__(self, incarnation: Incarnation, folder: Path) -> None:
        self.id = incarnation
        self.folder = folder
        self.is_asked = False  # `start` or `stop` of a session has named it, so that its events are reported
        self.has_started = False  # its start was reported
        self.end: End | None = None  # its end, if known; perhaps not reported yet
        self.is_over = False  # its end was reported
        self.is_recorded = False  # an earlier supervisor has recorded its end
        self.is_complete = False  # its whole log is on this machine
        self._is_read = False
        self._is_measured = False

    @property
    def is_running(self) -> bool:
        """Return whether it was reported as started, and not as ended."""
        return self.has_started and not self.is_over

    def describe_start(self) -> Iterable[Event]:
        """Return the events that report its start."""
        return [ReplicaStarted(self.id.replica, self.id.attempt, self.id.incarnation, note=self.note)]

    def read_end(self) -> End | None:
        """Return the end that an earlier supervisor has recorded; None if there is none."""
        return read_end(self.folder)

    def record_end(self, end: End) -> None:
        """Record an end for the next supervisor."""
        note_end(self.folder, end)

    def take_measured(self) -> bool:
        """Return whether its usage has to be measured now: while it runs, and once after its end."""
        if not self.has_started or self._is_measured:
            return False
        self._is_measured = self.is_over
        return True

    def take_folder(self) -> Path | None:
        """Return its folder while it runs, and once after its end; None after that."""
        if self._is_read:
            return None
        self._is_read = self.is_over
        return self.folder


T = TypeVar("T", bound=Tracked)


class ReplicaTracker(Generic[T]):
    """Stores the incarnations of one run, and reports events of those that a start or a stop has named."""

    def __init__(
        self, run_dir: Path, make: Callable[[Incarnation, Path], T], loop: AbstractEventLoop, report: ReportEvent
    ) -> None:
        self._run_dir = run_dir
        self._make = make
        self._loop = loop
        self._report = report
        self._tracked: dict[Incarnation, T] = {}
        self._ends: list[T] = []  # not reported yet, in the order of their times
        self._holds: dict[str, int] = {}
        self._numbers = count()
        self._is_collecting = False

    def __iter__(self) -> Iterator[T]:
        return iter([*self._tracked.values()])

    def get(self, incarnation: Incarnation) -> T | None:
        """Return the data of an incarnation; None if `find` has not created it."""
        return self._tracked.get(incarnation)

    def find(self, incarnation: Incarnation) -> T:
        """Return the data of an incarnation; create it if there is none yet."""
        if incarnation not in self._tracked:
            self._tracked[incarnation] = self._make(incarnation, self._run_dir / incarnation.folder)
        return self._tracked[incarnation]

    def ask(self, incarnations: Iterable[Incarnation]) -> list[T]:
        """Report events of these incarnations from now on, first the ends that an earlier supervisor has recorded.

        Return the data of these incarnations.
        """
        found = [self.find(each) for each in incarnations]
        for each in found:
            if not each.is_asked:
                each.is_asked = True
                if end := each.read_end():
                    each.end, each.is_complete, each.is_recorded = end, True, True
                    self._add(each)
        self._report_ends()
        return found

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Delay the reports of ends that are found within the block, and report them after it, in their order."""
        self._is_collecting = True
        try:
            yield
        finally:
            self._is_collecting = False
            self._report_ends()

    def start(self, tracked: T, event: ReplicaStarted | None = None) -> bool:
        """Report a start, with this event if there is one; return False if it is too late or was reported before."""
        if tracked.has_started or tracked.is_over or (tracked.end and not tracked.end.has_started):
            return False
        tracked.has_started = True
        for each in [event] if event else tracked.describe_start():
            self._report(each)
        return True

    def end(self, tracked: T, end: End, *, is_complete: bool = True) -> None:
        """Report the first end of an incarnation; if its log is not complete yet, after `complete` was called."""
        if tracked.end is None:
            tracked.end, tracked.is_complete = end, is_complete
            self._add(tracked)
            self._report_ends()
            if self._holds and not tracked.is_over:
                self._loop.call_later(LONGEST_HOLD_SECONDS, self._report_overdue, tracked)

    def complete(self, tracked: T) -> None:
        """Record that the whole log of an incarnation is on this machine, so that its end can be reported."""
        tracked.is_complete = True
        self._report_ends()

    def hold(self, source: str) -> int:
        """Hold reports of ends back until this source is released: it may still report an earlier end.

        Return the number of the hold, for `release`.
        """
        number = self._holds[source] = next(self._numbers)
        return number

    def release(self, source: str, number: int) -> None:
        """Release this hold of a source; nothing changes if the source was held again since."""
        if self._holds.get(source) == number:
            del self._holds[source]
            self._report_ends()

    def is_held(self, source: str, number: int) -> bool:
        """Return whether this hold of a source is the last one and was not released."""
        return self._holds.get(source) == number

    def traces(self) -> Iterator[Path]:
        """Yield the folders of all running incarnations, and of those that have ended since the last call."""
        for each in self:
            if each.is_asked and (folder := each.take_folder()):
                yield folder

    def _add(self, tracked: T) -> None:
        insort(self._ends, tracked, key=lambda each: each.end.at_seconds if each.end else 0.0)

    def _report_overdue(self, tracked: T) -> None:
        if not tracked.is_over:
            self._report_ends(holds=False)

    def _report_ends(self, *, holds: bool = True) -> None:
        while self._may_report(holds=holds):
            self._report_end(self._ends.pop(0))

    def _may_report(self, *, holds: bool) -> bool:
        is_held = self._is_collecting or (holds and bool(self._holds))
        return not is_held and bool(self._ends) and self._ends[0].is_complete

    def _report_end(self, tracked: T) -> None:
        end, which = tracked.end, tracked.id
        if end is None:
            raise AssertionError("an end is known before it is reported")
        if end.has_started:
            self.start(tracked)
        if not tracked.is_recorded:
            tracked.record_end(end)
        tracked.is_over = True
        self._report(ReplicaExited(which.replica, which.attempt, which.incarnation, end.exit, end.at_seconds))
