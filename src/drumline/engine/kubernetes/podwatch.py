"""Track the replicas of one run by their pods: waiting, running or ended.

An end is reported only when the log is copied.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline.engine.kubernetes.answer_fields import mapping, text
from drumline.engine.kubernetes.api import Change
from drumline.engine.kubernetes.pod_status import (
    PodEnded,
    PodRunning,
    is_over,
    is_terminating,
    main_container,
    read_pod_status,
    started_at,
)
from drumline.engine.kubernetes.wait_reason import PodEvent, PodWaiting, read_event
from drumline.engine.notes import End, note, read_notes
from drumline.engine.protocol import ReportEvent
from drumline.engine.tracker import ReplicaTracker, Tracked
from drumline.record import Record
from drumline.run.event import Exit, ReplicaWaits
from drumline.run.incarnation import Incarnation

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Pod = dict[str, Any]
_USUAL_WAIT_SECONDS = 10.0
_MOST_WAITS = 200  # reports per incarnation: every user of the namespace can write events
_SECOND = 0.999  # times of a cluster are truncated to seconds
_APART = 1e-6  # seconds between two ends, to keep their order


class TrackedPod(Tracked):
    """An incarnation that was requested or has a pod."""

    def __init__(self, incarnation: Incarnation, folder: Path) -> None:
        super().__init__(incarnation, folder)
        self.pod: Pod | None = None
        self.controllers: tuple[str, ...] = ()  # the names of the objects that create its pod
        self.trouble: PodWaiting | None = None
        self.is_stopped = False  # by this supervisor
        self.grace_seconds: float | None = None  # of its last deletion
        self.lost_after = 0.0  # UTC; before this time the pod does not count as lost
        self.waits = PodWaiting()
        self.reported_wait = ("", "", False)
        self.waits_reported = 0
        self.started_at = 0.0  # UTC

    @property
    def pod_name(self) -> str:
        """The name of its pod; empty if it has none."""
        return str(self.pod["metadata"]["name"]) if self.pod else ""

    @property
    def node(self) -> str:
        """The node of its pod."""
        return text(mapping(self.pod.get("spec")).get("nodeName")) if self.pod else ""

    @property
    def note(self) -> str:  # type: ignore[override]
        """Where it runs: `on NODE`; its pod may be gone."""
        return f"on {self.node or read_notes(self.folder).get('node', '')}"


class FollowLog(Record):
    """Copy the log of a container as it grows."""

    pod: TrackedPod
    container: str


class DrainLog(Record):
    """Copy the rest of the log of a container that has ended; then its end can be reported."""

    pod: TrackedPod
    container: str


class DeletePod(Record):
    """Delete a pod that is not wanted."""

    pod: TrackedPod


class PodWatch:
    """Processes changes of pods; starts and ends are reported by `tracker`."""

    def __init__(
        self,
        tracker: ReplicaTracker[TrackedPod],
        loop: AbstractEventLoop,
        report: ReportEvent,
        *,
        identify: Callable[[Pod], Incarnation | None],
    ) -> None:
        self._tracker = tracker
        self._loop = loop
        self._report = report
        self._identify = identify
        self._by_pod: dict[str, TrackedPod] = {}
        self._last_end_at = -inf  # the latest end so far
        self.due: asyncio.Queue[FollowLog | DrainLog | DeletePod] = asyncio.Queue()  # actions for the session
        self.listed = asyncio.Event()  # all existing pods are known

    def track(self, incarnations: Iterable[Incarnation]) -> list[TrackedPod]:
        """Report the events of these incarnations from now on; return them."""
        found = self._tracker.ask(incarnations)
        self._check_all(each for each in found if each.end is None)
        return found

    def handle_pods(self, change: Change) -> None:
        """Process a change of pods."""
        if change.what == "LISTED":
            self.listed.set()
            existing = {pod["metadata"]["uid"] for pod in change.objects}
            for each in self._tracker:
                if each.pod and each.pod["metadata"]["uid"] not in existing:
                    self._check(each, deleted=True)
        found = [kept for pod in change.objects if (kept := self._recognize(pod))]
        if change.what == "DELETED":
            for each in found:
                self._check(each, deleted=True)
        else:
            self._check_all(found)

    def handle_events(self, change: Change) -> None:
        """Process events of the cluster, which explain a wait in more detail than the status of a pod."""
        for event in change.objects:
            trouble = read_event(event)
            if trouble is None or change.what == "DELETED":
                continue
            for each in self._concerned(trouble):
                each.trouble = trouble.wait
                if each.pod:
                    self._check(each)
                else:
                    self.wait(each, trouble.wait)

    def end_without_pod(self, incarnation: Incarnation, exit_: Exit) -> None:
        """Report the end of an incarnation that has no pod and will have none."""
        found = self._tracker.find(incarnation)
        if found.pod is None:
            self._tracker.end(found, End(exit_, self._loop.time(), has_started=False))

    def _concerned(self, trouble: PodEvent) -> list[TrackedPod]:
        """Return the incarnations that an event is about; an event of a controller is about those without a pod."""
        if trouble.kind == "Pod":
            return [self._by_pod[trouble.name]] if trouble.name in self._by_pod else []
        return [each for each in self._tracker if each.pod is None and trouble.name in each.controllers]

    def _recognize(self, pod: Pod) -> TrackedPod | None:
        """Return the incarnation of a pod; None for a pod that is not the run's, or the second of its incarnation."""
        incarnation = self._identify(pod)
        if incarnation is None:
            return None
        kept = self._tracker.find(incarnation)
        if kept.pod is not None and kept.pod["metadata"]["uid"] != pod["metadata"]["uid"]:
            return None
        kept.pod = pod
        self._by_pod[kept.pod_name] = kept
        if (kept.is_stopped or kept.end) and not pod["metadata"].get("deletionTimestamp") and not is_over(pod):
            self.due.put_nowait(DeletePod(kept))
        return kept

    def _check_all(self, pods: Iterable[TrackedPod]) -> None:
        """Check these incarnations; those that have ended are checked in the order of their ends."""
        for each in sorted(pods, key=_order):
            self._check(each)

    def _check(self, kept: TrackedPod, *, deleted: bool = False) -> None:
        if not kept.is_asked or kept.end or kept.pod is None:
            return
        # A kubelet waits for the whole grace of the first deletion, even if a later one has a shorter grace.
        now = time.time() if time.time() >= kept.lost_after else 0.0
        status = read_pod_status(kept.pod, now=now, deleted=deleted, asked=kept.is_stopped, trouble=kept.trouble)
        match status:
            case PodRunning():
                if status.started_at is not None:
                    self._start(kept, status.started_at)
                if status.overdue_at is not None:
                    wait = max(0.1, max(status.overdue_at, kept.lost_after) - time.time())
                    self._loop.call_later(wait, partial(self._check, kept))
            case PodWaiting():
                self.wait(kept, status)
            case PodEnded():
                started = status.container == main_container(kept.pod)
                kept.started_at = kept.started_at or started_at(kept.pod) or time.time()
                at = self._at(status)
                self._begin_end(kept, End(status.exit, at, has_started=started), status.container)

    def _at(self, status: PodEnded) -> float:
        """Return when it ended by the loop's clock: at the end of the reported second."""
        now = time.time()
        at = now if status.ended_at is None else min(now, status.ended_at + _SECOND)
        at = self._loop.time() - (now - at)
        return max(at, self._last_end_at + _APART)

    def _start(self, kept: TrackedPod, started_at: float) -> None:
        if not kept.has_started and kept.pod:
            kept.started_at = started_at
            note(kept.folder, {"pod": kept.pod_name, "node": kept.node})
            self._tracker.start(kept)
            self.due.put_nowait(FollowLog(kept, main_container(kept.pod)))

    def wait(self, kept: TrackedPod, wait: PodWaiting) -> None:
        """Report what an incarnation waits for when that changes; report a usual wait only if it takes long."""
        if kept.has_started or kept.end or not kept.is_asked or wait == kept.waits:
            return
        kept.waits = wait
        if wait.is_usual and not wait.is_fatal:
            self._loop.call_later(_USUAL_WAIT_SECONDS, partial(self._report_wait, kept, wait))
        else:
            self._report_wait(kept, wait)

    def _report_wait(self, kept: TrackedPod, wait: PodWaiting) -> None:
        reported = (wait.reason, wait.message, wait.is_fatal)
        if kept.waits_reported >= _MOST_WAITS:
            return
        if kept.waits is wait and reported != kept.reported_wait and not (kept.has_started or kept.end):
            kept.reported_wait = reported
            kept.waits_reported += 1
            self._report(ReplicaWaits(kept.id.replica, kept.id.attempt, kept.id.incarnation, *reported))

    def _begin_end(self, kept: TrackedPod, end: End, container: str | None) -> None:
        if end.has_started:
            note(kept.folder, {"pod": kept.pod_name, "node": kept.node})
        self._last_end_at = max(self._last_end_at, end.at_seconds)
        self._tracker.end(kept, end, is_complete=container is None)
        if container:
            self.due.put_nowait(DrainLog(kept, container))


def _order(kept: TrackedPod) -> tuple[float, bool, int]:
    """Return the sort key of an end: its second, whether the pod was deleted, and the resource version."""
    if kept.pod is None:
        return 0.0, False, 0
    status = read_pod_status(kept.pod, now=time.time())
    at = status.ended_at if isinstance(status, PodEnded) else None
    version = str(kept.pod["metadata"].get("resourceVersion"))
    return at or 0.0, is_terminating(kept.pod), int(version) if version.isdecimal() and len(version) < 20 else 0
