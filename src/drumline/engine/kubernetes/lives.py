"""The lives of one run's replicas, as their pods tell of them: who runs, who waits for what, who has ended and how.

Each start and each end is told once, an end only when its log is here, and ends in the order in which they came.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline.engine.kubernetes.api import Change
from drumline.engine.kubernetes.names import Life
from drumline.engine.kubernetes.pods import (
    PodEnded,
    PodRuns,
    is_over,
    is_to_go,
    main_container,
    read_pod,
    started_at,
)
from drumline.engine.kubernetes.shape import mapping, text
from drumline.engine.kubernetes.waits import PodWaits, Trouble, read_event
from drumline.engine.notes import End, note, note_end, read_end
from drumline.engine.protocol import Tell
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted, ReplicaWaits
from drumline.run.traces import trace_dir

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Pod = dict[str, Any]
NEVER_STARTED = Exit(message="it was never started")
_USUAL_SECONDS = 10.0
_MOST_WAITS = 200  # that are told of a life: every user of the namespace can write events
_SECOND = 0.999  # times of a cluster are cut to whole seconds
_APART = 1e-6  # two ends that nobody can tell apart by their times


class Kept:
    """A life that somebody has asked about, or that has a pod."""

    def __init__(self, life: Life, folder: Path) -> None:
        self.life = life
        self.folder = folder
        self.pod: Pod | None = None
        self.makers: tuple[str, ...] = ()  # what should make its pod, by name
        self.trouble: PodWaits | None = None
        self.is_asked_for = False  # started or stopped by whoever is told
        self.is_stopped = False  # by us
        self.grace_seconds: float | None = None  # with which it was deleted last
        self.patient_until = 0.0  # UTC; before that, it is not taken for lost
        self.told_start = False
        self.waits = PodWaits()
        self.told_wait = ("", "", False)
        self.waits_told = 0
        self.end: End | None = None  # as it was, told or about to be
        self.told_end = False
        self.started_at = 0.0  # UTC
        self.looked_at = False
        self.measured = False

    @property
    def pod_name(self) -> str:
        """What its pod is called; empty if it has none."""
        return str(self.pod["metadata"]["name"]) if self.pod else ""

    @property
    def node(self) -> str:
        """Where its pod is."""
        return text(mapping(self.pod.get("spec")).get("nodeName")) if self.pod else ""


class Lives:
    """Knows every life of a run, and tells of those that were asked for."""

    def __init__(
        self,
        run_dir: Path,
        loop: AbstractEventLoop,
        tell: Tell,
        *,
        life_of: Callable[[Pod], Life | None],
        follow: Callable[[Kept, str], None],
        drain: Callable[[Kept, str, Callable[[], None]], None],
        stray: Callable[[Kept], None],
    ) -> None:
        self._run_dir = run_dir
        self._loop = loop
        self._tell = tell
        self._life_of = life_of
        self._follow = follow  # brings a log here as it grows
        self._drain = drain  # brings all of a log here, then calls
        self._stray = stray  # is told of pods that should not be
        self._kept: dict[Life, Kept] = {}
        self._by_pod: dict[str, Kept] = {}
        self._ends: deque[tuple[Kept, End]] = deque()  # in the order in which they came
        self._drained: set[Life] = set()
        self._last_end_at = -inf  # of whoever was seen to end
        self.is_listed = False  # all that there is has been seen

    def keep(self, life: Life) -> Kept:
        """What is known of a life."""
        if life not in self._kept:
            self._kept[life] = Kept(life, self._run_dir / trace_dir(life.replica, life.attempt, life.incarnation))
        return self._kept[life]

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._kept.values())

    def ask_for(self, lives: Iterable[Life]) -> list[Kept]:
        """Tell of these from now on; who ended before is told of in the order of the ends."""
        kept = [self.keep(life) for life in lives]
        before = []
        for each in kept:
            if each.is_asked_for:
                continue
            each.is_asked_for = True
            if each.end is None and (end := read_end(each.folder)):
                each.end = end
                each.told_start = not end.has_started
                before.append((each, end))
        for each, end in sorted(before, key=lambda pair: pair[1].at_seconds):
            self._drained.add(each.life)
            self._ends.append((each, end))
        self._look_at_all(each for each in kept if each.end is None)
        self._conclude()
        return kept

    def see(self, change: Change) -> None:
        """Take in what the watch has seen of pods."""
        if change.what == "LISTED":
            self.is_listed = True
            there = {pod["metadata"]["uid"] for pod in change.objects}
            for each in [*self._kept.values()]:
                if each.pod and each.pod["metadata"]["uid"] not in there:
                    self._look(each, deleted=True)
        found = [kept for pod in change.objects if (kept := self._recognize(pod))]
        if change.what == "DELETED":
            for each in found:
                self._look(each, deleted=True)
        else:
            self._look_at_all(found)
        self._conclude()

    def hear(self, change: Change) -> None:
        """Take in what the cluster's events say that no status does."""
        for event in change.objects:
            trouble = read_event(event)
            if trouble is None or change.what == "DELETED":
                continue
            for each in self._concerned(trouble):
                each.trouble = trouble.wait
                if each.pod:
                    self._look(each)
                else:
                    self.wait(each, trouble.wait)
        self._conclude()

    def end_unseen(self, life: Life, exit_: Exit) -> None:
        """Tell the end of a life that has no pod, and will have none."""
        kept = self.keep(life)
        if kept.pod is None and kept.end is None:
            self._begin_end(kept, End(exit_, self._loop.time(), has_started=False), container=None)
            self._conclude()

    def _concerned(self, trouble: Trouble) -> list[Kept]:
        """Whose pod an event is about; or who has none yet, since whatever should make it cannot."""
        if trouble.kind == "Pod":
            return [self._by_pod[trouble.name]] if trouble.name in self._by_pod else []
        return [each for each in self._kept.values() if each.pod is None and trouble.name in each.makers]

    def _recognize(self, pod: Pod) -> Kept | None:
        """Whose a pod is; the first one of a life is its own, and any other is nobody's."""
        life = self._life_of(pod)
        if life is None:
            return None
        kept = self.keep(life)
        if kept.pod is not None and kept.pod["metadata"]["uid"] != pod["metadata"]["uid"]:
            return None
        kept.pod = pod
        self._by_pod[kept.pod_name] = kept
        if (kept.is_stopped or kept.end) and not pod["metadata"].get("deletionTimestamp") and not is_over(pod):
            self._stray(kept)
        return kept

    def _look_at_all(self, lives: Iterable[Kept]) -> None:
        """Look at these; those who have ended in the order in which they did."""
        for each in sorted(lives, key=_order):
            self._look(each)

    def _look(self, kept: Kept, *, deleted: bool = False) -> None:
        if not kept.is_asked_for or kept.end or kept.pod is None:
            return
        # A kubelet that has begun to wait for the end of a grace waits for all of it, even if less is asked for then.
        now = time.time() if time.time() >= kept.patient_until else 0.0
        standing = read_pod(kept.pod, now=now, deleted=deleted, asked=kept.is_stopped, trouble=kept.trouble)
        match standing:
            case PodRuns():
                if standing.started_at is not None:
                    self._tell_start(kept, standing.started_at)
                if standing.overdue_at is not None:
                    wait = max(0.1, max(standing.overdue_at, kept.patient_until) - time.time())
                    self._loop.call_later(wait, partial(self._look_again, kept))
            case PodWaits():
                self.wait(kept, standing)
            case PodEnded():
                started = standing.container == main_container(kept.pod)
                kept.started_at = kept.started_at or started_at(kept.pod) or time.time()
                at = self._at(standing)
                self._begin_end(kept, End(standing.exit, at, has_started=started), standing.container)

    def _look_again(self, kept: Kept) -> None:
        self._look(kept)
        self._conclude()

    def _at(self, standing: PodEnded) -> float:
        """When it ended by the loop's clock: as late in its second as it can be, for it was not seen before that."""
        now = time.time()
        at = now if standing.ended_at is None else min(now, standing.ended_at + _SECOND)
        at = self._loop.time() - (now - at)
        return max(at, self._last_end_at + _APART)

    def _tell_start(self, kept: Kept, started_at: float) -> None:
        if not kept.told_start and kept.pod:
            kept.told_start = True
            kept.started_at = started_at
            note(kept.folder, {"pod": kept.pod_name, "node": kept.node})
            self._tell(
                ReplicaStarted(kept.life.replica, kept.life.attempt, kept.life.incarnation, note=f"on {kept.node}")
            )
            if kept.end is None:
                self._follow(kept, main_container(kept.pod))

    def wait(self, kept: Kept, wait: PodWaits) -> None:
        """Tell for what a life waits, once per change; what is part of every start only if it takes long."""
        if kept.told_start or kept.end or not kept.is_asked_for or wait == kept.waits:
            return
        kept.waits = wait
        if wait.is_usual and not wait.is_fatal:
            self._loop.call_later(_USUAL_SECONDS, partial(self._tell_wait, kept, wait))
        else:
            self._tell_wait(kept, wait)

    def _tell_wait(self, kept: Kept, wait: PodWaits) -> None:
        told = (wait.reason, wait.message, wait.is_fatal)
        if kept.waits_told >= _MOST_WAITS:
            return
        if kept.waits is wait and told != kept.told_wait and not (kept.told_start or kept.end):
            kept.told_wait = told
            kept.waits_told += 1
            self._tell(ReplicaWaits(kept.life.replica, kept.life.attempt, kept.life.incarnation, *told))

    def _begin_end(self, kept: Kept, end: End, container: str | None) -> None:
        kept.end = end
        self._ends.append((kept, end))
        self._last_end_at = max(self._last_end_at, end.at_seconds)
        if container and kept.pod:
            self._drain(kept, container, partial(self._is_here, kept))
        else:
            self._drained.add(kept.life)

    def _is_here(self, kept: Kept) -> None:
        self._drained.add(kept.life)
        self._conclude()

    def _conclude(self) -> None:
        """Tell the ends whose logs are here, as far as nobody before them is waited for."""
        while self._ends and self._ends[0][0].life in self._drained:
            kept, end = self._ends.popleft()
            if end.has_started:
                self._tell_start(kept, kept.started_at)
            note_end(kept.folder, end)
            kept.told_end = True
            self._tell(
                ReplicaExited(kept.life.replica, kept.life.attempt, kept.life.incarnation, end.exit, end.at_seconds)
            )


def _order(kept: Kept) -> tuple[float, bool, int]:
    """Where an end stands among others: by its second, whether it was told to go, which the cluster knew first."""
    if kept.pod is None:
        return 0.0, False, 0
    standing = read_pod(kept.pod, now=time.time())
    at = standing.ended_at if isinstance(standing, PodEnded) else None
    version = str(kept.pod["metadata"].get("resourceVersion"))
    return at or 0.0, is_to_go(kept.pod), int(version) if version.isdecimal() and len(version) < 20 else 0
