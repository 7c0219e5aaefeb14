"""The fake replicas of one run: start, resume and stop them, and report their events in time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.fake.behavior import behavior_of
from drumline.engine.fake.replica import FakeReplica
from drumline.engine.protocol import ReportEvent
from drumline.engine.tracker import ReplicaTracker
from drumline.plan.types import Launch
from drumline.run.incarnation import Incarnation

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class FakeReplicas:
    """Reports the events of fake replicas at their times."""

    def __init__(self, run_dir: Path, loop: AbstractEventLoop, report: ReportEvent) -> None:
        self.tracker = ReplicaTracker(run_dir, FakeReplica, loop, report)
        self._loop = loop

    def start(self, launches: Iterable[Launch]) -> None:
        """Start the replicas of these launches that were not started before."""
        wanted = {Incarnation(each.replica.id, each.attempt, each.incarnation): each for each in launches}
        with self.tracker.in_order():
            for each in self.tracker.ask(wanted):
                if not each.resume(self._loop.time()):
                    each.begin(behavior_of(wanted[each.id]), self._loop.time())
                self._advance(each)

    def resume(self, incarnations: Iterable[Incarnation]) -> list[FakeReplica]:
        """Continue these incarnations from their traces, and report their events from now on; return them."""
        with self.tracker.in_order():
            found = self.tracker.ask(incarnations)
            for each in found:
                each.resume(self._loop.time())
                self._advance(each)
        return found

    def stop(self, incarnations: Iterable[Incarnation], grace_seconds: float) -> None:
        """Stop these incarnations; one that had ended before keeps its end, and one that never began ends now."""
        for each in self.resume(incarnations):
            if grace_seconds <= 0:
                self._signal(each, "kill")
            else:
                self._loop.call_later(grace_seconds, partial(self._signal, each, "kill"))
                self._signal(each, "term")

    def _signal(self, replica: FakeReplica, name: str) -> None:
        if replica.end is None:
            replica.signal(name, self._loop.time())
            self._advance(replica)

    def _advance(self, replica: FakeReplica) -> None:
        """Report the events that are due, and schedule the next call; idempotent."""
        if replica.end is not None:
            return
        now, end = self._loop.time(), replica.find_end()
        until = min(now, end.at_seconds)
        replica.write_log(until)
        if replica.started <= until:
            self.tracker.start(replica)
        if end.at_seconds <= now:
            self.tracker.end(replica, end)
            return
        due = min(time for time in replica.due_times() if time > now)
        if due < inf:
            self._loop.call_later(due - now, partial(self._advance, replica))
