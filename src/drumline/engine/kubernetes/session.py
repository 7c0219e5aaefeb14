"""One run in a cluster, inside its supervisor."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from types import MappingProxyType

from drumline.engine.events import EventQueue
from drumline.engine.incarnation import Incarnation
from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.api import Api, Change
from drumline.engine.kubernetes.code import Code, pack_project
from drumline.engine.kubernetes.door import open_door
from drumline.engine.kubernetes.image.helper import BuildHelper
from drumline.engine.kubernetes.makers import OPERATED, Makers
from drumline.engine.kubernetes.opinion import objections, remarks
from drumline.engine.kubernetes.place import awaits_names, place
from drumline.engine.kubernetes.planned import cluster_of
from drumline.engine.kubernetes.pods import CONFIRM_SECONDS, has_run, is_silent, is_to_go, main_container
from drumline.engine.kubernetes.podwatch import PodWatch, TrackedPod
from drumline.engine.kubernetes.shape import mapping, text
from drumline.engine.kubernetes.tally import Measured, Tally
from drumline.engine.kubernetes.there import There, life_of
from drumline.engine.log import log
from drumline.engine.protocol import Placed, Site
from drumline.engine.tasks import Tasks, Work
from drumline.engine.tracker import NEVER_STARTED, ReplicaTracker
from drumline.errors import DrumlineError, EngineError
from drumline.plan.types import BUILD, Launch, Plan, ReplicaId
from drumline.run.event import EngineFailed, EngineWarned, Event, Exit, ProjectCarried
from drumline.run.traces import LOG
from drumline.run.usage import Usage
from drumline.runtime.keeper import boot_id
from drumline.words import listed, span

_REMOVE_SECONDS = 600.0
_LEAST_GRACE_SECONDS = 1.0  # with none at all, a pod is forgotten while it may still run
_STOPPED_EARLY = Exit(message="it was stopped before it started")


class ClusterSession:
    """Starts, stops and watches the replicas of one run; owns the tasks that talk to the cluster."""

    def __init__(self, plan: Plan, run_dir: Path, site: Site) -> None:
        cluster = cluster_of(plan)
        self._events = EventQueue()
        loop, tell = asyncio.get_running_loop(), self._events.put
        self._build = BuildHelper(run_dir, site, loop, tell) if BUILD in plan.helpers else None
        self._placed = plan  # as it was placed last
        client, where = open_door(cluster.context, cluster.namespace, cluster.kubeconfig)
        self._plan = plan
        self._is_operated = plan.engine in OPERATED
        self._loop = loop
        self._tell = tell
        self._there = There(
            Api(client, where, patience_seconds=inf), plan, run_dir, partial(pack_project, site=site), self._warn
        )
        self._client = client
        self._tasks = Tasks(loop)
        self._makers = Makers(plan)
        self._tracker = ReplicaTracker(run_dir, TrackedPod, loop, tell)
        self._pods = PodWatch(
            self._tracker,
            loop,
            tell,
            identify=self._there.ownership.settled,
            follow=self._follow,
            drain=self._drain,
            stray=self._delete,
        )
        self._tally = Tally(loop.time, time.time, boot_id())
        self._attempt = 0  # that was started last
        self._has_begun = False  # as the cluster was told: somebody of this attempt has ended
        self._launched: set[Incarnation] = set()  # by us
        self._unwanted: set[str] = set()  # Jobs that were to be made, and are not any more
        self._warnings: set[str] = set()
        self._later: list[Callable[[], None]] = []  # as soon as everything there is has been seen
        self._tasks.begin(self._there.watch_pods(self._see))
        self._tasks.begin(self._there.watch_events(self._pods.hear))

    def events(self) -> AsyncIterator[Event]:
        """Return everything that happens to the run's pods."""
        return self._events

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placed:
        """Give every replica the name that its pod will have; nothing is claimed."""
        del keep
        self._placed = plan
        return Placed(place(plan, attempt=attempt), tuple(remarks(plan)))

    async def start(self, launches: Sequence[Launch]) -> None:
        """Create the Jobs of those that have none."""
        for objection in objections(self._placed, launches):
            raise EngineError(objection)
        if launches:
            self._start(self._placed, launches)

    def _start(self, plan: Plan, launches: Sequence[Launch]) -> None:
        lives = {life_of(each): each for each in launches}
        self._attempt = launches[0].attempt
        kept = self._pods.ask(lives)
        wanted = [lives[each.id] for each in kept if each.end is None and each.id not in self._launched]
        self._launched.update(lives)
        for each in kept:
            each.makers = self._makers.of(each.id)
        if wanted:
            has_begun = self._somebody_ended()
            errand = self._there.start(plan, wanted, _secrets, self._unwanted, self._carried, has_begun=has_begun)
            self._tasks.begin(self._submit(errand, [life_of(each) for each in wanted]))
        self._has_begun = False
        self._let_late_go()

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Start the Job of a helper, unless it was started before; what builds the image is a process here."""
        if helper == BUILD and self._build:
            self._build.start(plan, incarnation=incarnation)
            return
        (kept,) = self._pods.ask([Incarnation(helper, 0, incarnation)])
        if kept.end is None and kept.id not in self._launched:
            self._launched.add(kept.id)
            kept.makers = self._makers.of(kept.id)
            errand = self._there.prepare(plan, kept.id, _secrets, self._unwanted, self._carried)
            self._tasks.begin(self._submit(errand, [kept.id]))

    async def stop(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        grace_seconds: float,
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Delete the pods of these, or what would have made them."""
        if self._build and BUILD in replicas:
            self._build.stop(incarnations.get(BUILD, 0), grace_seconds=grace_seconds)
        grace_seconds = max(grace_seconds, _LEAST_GRACE_SECONDS)
        lives = [Incarnation(each, attempt, incarnations.get(each, 0)) for each in replicas if each != BUILD]
        left = [each for each in self._pods.ask(lives) if each.end is None]
        for each in left:
            each.is_stopped = True
            self._unwanted.add(names.job(self._plan, each.id.replica, each.id.attempt, each.id.incarnation))
        if self._is_operated and any(_is_needed(each.id) for each in left):
            self._stop_all(left, grace_seconds)
        else:
            for each in left:
                self._stop(each, grace_seconds)

    async def release(self, *, forced: bool = False) -> None:
        """Remove everything of the run from the cluster but its claims; hang up."""
        del forced
        if self._tasks.is_open:
            try:
                async with asyncio.timeout(_REMOVE_SECONDS):
                    await self._there.remove(self._remains)
            except TimeoutError:
                self._remains()
            await self.hang_up()

    async def hang_up(self) -> None:
        """End everything that goes on here, and close every connection; pods are left alone."""
        await self._there.close()
        await self._tasks.close()
        await self._client.aclose()

    def traces(self) -> Iterator[Path]:
        """The folders of all lives that go on, and of those that ended since this was asked last."""
        yield from self._tracker.traces()
        if self._build:
            yield from self._build.traces()

    async def usage(self, *, watched: bool) -> Sequence[Usage]:
        """What lives have used by the last that the cluster said of them."""
        lives = [each for each in self._tracker if each.has_started and not each.is_measured and each.pod]
        pods = {each.pod_name: each.node for each in lives if not each.is_over}
        if pods and self._tally.is_due(watched=watched):
            self._tasks.begin(self._there.measure(pods, self._tally.take))
        for each in lives:
            each.is_measured = each.is_over
        measured = (
            Measured(each.id, each.folder, each.pod_name, each.started_at, each.end.at_seconds if each.end else None)
            for each in lives
        )
        return [*self._tally.measure(measured)]

    def _let_late_go(self) -> None:
        """Let nobody wait for the name of somebody who has ended: all names were known, or that one had not begun."""
        if awaits_names(self._plan) and not self._has_begun and self._somebody_waits() and self._somebody_ended():
            self._has_begun = True
            self._tasks.begin(self._there.let_go())

    def _somebody_waits(self) -> bool:
        """Whether somebody of this attempt may still look for names: in a TFJob, that looks as if it ran."""
        looks_up = self._plan.engine == "tfjob"
        return any(not each.end and (looks_up or not each.has_started) for each in self._of_attempt())

    def _somebody_ended(self) -> bool:
        """Whether somebody of this attempt has done its work and is gone; of who fails, the line is told otherwise."""
        return any(each.end and each.end.exit.ok for each in self._of_attempt())

    def _of_attempt(self) -> Iterator[TrackedPod]:
        return (each for each in self._tracker if each.id.attempt == self._attempt and not each.id.replica.is_helper)

    def _stop(self, kept: TrackedPod, grace_seconds: float) -> None:
        if not self._pods.is_listed:
            self._later.append(partial(self._stop, kept, grace_seconds))
        elif kept.end is None and kept.pod is None:
            errand = partial(self._there.stop_early, kept.id, self._useless_maker(kept.id), self._ended_early)
            self._tasks.begin(self._there.insist(errand))
        elif kept.end is None:
            self._end(kept, grace_seconds)

    def _useless_maker(self, life: Incarnation) -> str | None:
        """The Job that would have made a pod for this life, if nobody else needs it."""
        (maker, *_) = self._makers.of(life)
        if life.replica.is_helper or maker == names.job(self._plan, life.replica, life.attempt, life.incarnation):
            return maker
        others = [Incarnation(each.id, life.attempt, 0) for each in self._plan.replicas]
        sharing = [self._tracker.find(each) for each in others if self._makers.of(each)[0] == maker]
        return maker if all(each.is_stopped or each.end for each in sharing) else None

    def _stop_all(self, left: Sequence[TrackedPod], grace_seconds: float) -> None:
        """Have the operator's object end, or delete it; an operator acts by itself when somebody has ended."""
        if not self._pods.is_listed:
            self._later.append(partial(self._stop_all, left, grace_seconds))
            return
        lives = [each.id for each in left if each.end is None]
        if not lives:
            return
        ends = [each.end.exit for each in self._tracker if each.id.attempt == lives[0].attempt and each.end]
        acts = any(end.ok for end in ends) or (self._plan.engine == "jobset" and bool(ends))
        stop = partial(
            self._there.stop_all,
            lives,
            may_wait=acts and grace_seconds > _LEAST_GRACE_SECONDS,
            delete=partial(self._delete_all, grace_seconds),
            then=self._ended_early,
        )
        self._tasks.begin(self._there.insist(stop))

    def _delete_all(self, grace_seconds: float, lives: Sequence[Incarnation]) -> None:
        for kept in map(self._tracker.find, lives):
            if kept.end is None and kept.pod:
                self._end(kept, grace_seconds)

    def _end(self, kept: TrackedPod, grace_seconds: float) -> None:
        """Delete a pod with this grace, unless it has a shorter one; where a kubelet waits for a longer one, kill."""
        if kept.pod is None or (kept.grace_seconds is not None and grace_seconds >= kept.grace_seconds):
            return
        is_late = kept.grace_seconds is not None or is_to_go(kept.pod)
        kept.grace_seconds = grace_seconds
        self._delete(kept)
        if is_late:
            self._tasks.begin(self._there.hurry(kept.pod_name, main_container(kept.pod), grace_seconds))

    def _delete(self, kept: TrackedPod) -> None:
        """Delete a pod, as gently as it was asked for; of who was not, its Job is over and it should not be."""
        if kept.pod:
            grace = _LEAST_GRACE_SECONDS if kept.grace_seconds is None else kept.grace_seconds
            metadata = kept.pod["metadata"]
            kept.patient_until = max(kept.patient_until, time.time() + grace + CONFIRM_SECONDS)
            delete = partial(self._there.delete_pod, metadata["name"], metadata["uid"], grace)
            self._tasks.begin(self._there.insist(delete))

    def _ended_early(self, life: Incarnation, was_there: bool) -> None:
        self._pods.end_unseen(life, _STOPPED_EARLY if was_there else NEVER_STARTED)

    def _follow(self, kept: TrackedPod, container: str) -> None:
        self._tasks.begin(self._there.follow(kept.pod_name, container, kept.folder / LOG))

    def _drain(self, kept: TrackedPod, container: str, then: Callable[[], None]) -> None:
        def drained(missing: str) -> None:
            # Of who was stopped so early that nobody came to follow it, nobody expects anything.
            if missing and not kept.is_stopped and kept.pod and has_run(kept.pod, container):
                self._warn(f"the end of what {kept.id.replica} said may be missing: {missing}")
            then()

        drain = self._there.drain(kept.pod_name, container, kept.folder / LOG, drained, is_stopped=kept.is_stopped)
        self._tasks.begin(drain)

    def _see(self, change: Change) -> None:
        self._pods.see(change)
        self._let_late_go()
        for pod in change.objects:
            if is_silent(pod) and not is_to_go(pod):
                lost = span(cluster_of(self._plan).lost_seconds)
                node = text(mapping(pod.get("spec")).get("nodeName"))
                self._warn(f"{node} does not answer; in {lost}, its pods count as lost")
        later, self._later = self._later, []
        for call in later:
            call()

    def _carried(self, code: Code) -> None:
        for remark in code.remarks:
            self._warn(remark)
        if code.files:
            self._tell(ProjectCarried(code.files, code.size_bytes))

    def _warn(self, message: str) -> None:
        if message not in self._warnings:
            self._warnings.add(message)
            self._tell(EngineWarned(self._attempt, message))

    def _remains(self) -> None:
        """Say in the supervisor's log what somebody has to remove by hand."""
        where = self._there.where
        shows = f"{where.kubectl} -n {where.namespace} get pods,jobs,configmaps -l {names.selector(self._plan)}"
        log(f"something of the run is left in the cluster; `{shows}` shows it")

    async def _submit(self, errand: Work, lives: Sequence[Incarnation]) -> None:
        try:
            await errand
        except DrumlineError as error:
            self._failed(lives, error.message)

    def _failed(self, lives: Sequence[Incarnation], message: str) -> None:
        self._launched.difference_update(lives)
        attempt = self._attempt if lives[0].replica.is_helper else lives[0].attempt
        self._tell(EngineFailed(attempt, message))


def _is_needed(life: Incarnation) -> bool:
    """Whether an operator's line cannot go on without it; an evaluator or a helper may go alone."""
    return not life.replica.is_helper and life.replica.role != "evaluator"


def _secrets(plan: Plan) -> dict[str, str]:
    wanted = names.secrets(plan)
    if missing := sorted(name for name in wanted if name not in os.environ):
        raise EngineError(f"the secrets {listed(missing)} are not set where this supervisor runs")
    return {name: os.environ[name] for name in wanted}
