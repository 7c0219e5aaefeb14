"""The session of one run in a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path

from drumline.engine.events import EventQueue
from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.answer_fields import mapping, text
from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.client import ClusterClient
from drumline.engine.kubernetes.connection import open_client
from drumline.engine.kubernetes.controllers import OPERATOR_KINDS, PodControllers
from drumline.engine.kubernetes.image.helper import BuildHelper
from drumline.engine.kubernetes.logs import LONGEST_FINISH_SECONDS, LogCollector
from drumline.engine.kubernetes.metrics import MetricsSource
from drumline.engine.kubernetes.place import awaits_names, place
from drumline.engine.kubernetes.plan_options import cluster_of
from drumline.engine.kubernetes.pod_status import (
    CONFIRM_SECONDS,
    has_run,
    is_terminating,
    is_unreachable,
    main_container,
)
from drumline.engine.kubernetes.podwatch import DeletePod, DrainLog, FollowLog, PodWatch, TrackedPod
from drumline.engine.kubernetes.project import pack_project
from drumline.engine.kubernetes.usage_totals import UsageTotals
from drumline.engine.kubernetes.validate import find_problems, find_warnings
from drumline.engine.log import log
from drumline.engine.protocol import Placed, Site
from drumline.engine.tasks import Tasks, Work
from drumline.engine.tracker import NEVER_STARTED, ReplicaTracker
from drumline.errors import DrumlineError, EngineError
from drumline.plan.types import BUILD, Launch, Plan, ReplicaId
from drumline.run.event import EngineFailed, EngineWarned, Event, Exit, ProjectCarried
from drumline.run.incarnation import Incarnation
from drumline.run.traces import LOG
from drumline.run.usage import Usage
from drumline.runtime.keeper import boot_id
from drumline.words import format_duration

_REMOVE_SECONDS = 600.0
_DRAIN_SECONDS = 10.0  # without progress in the log of a pod that has ended
_STOPPED_DRAIN_SECONDS = 60.0  # for the rest of the log of a stopped replica
_LEAST_GRACE_SECONDS = 1.0  # with 0 a pod is removed from the API while it may still run
_STOPPED_EARLY = Exit(message="it was stopped before it started")


class ClusterSession:
    """Starts, stops and watches the replicas of one run; owns the tasks that send requests."""

    def __init__(self, plan: Plan, run_dir: Path, site: Site) -> None:
        cluster = cluster_of(plan)
        self._events = EventQueue()
        loop, report = asyncio.get_running_loop(), self._events.put
        self._build = BuildHelper(run_dir, site, loop, report) if BUILD in plan.helpers else None
        self._placed = plan  # the plan of the last placement
        client, where = open_client(cluster.context, cluster.namespace, cluster.kubeconfig)
        self._plan = plan
        self._is_operated = plan.engine in OPERATOR_KINDS
        self._report = report
        self._api = Api(client, where, timeout_seconds=inf)
        self._cluster = ClusterClient(self._api, plan, run_dir, self._warn)
        self._pack = partial(pack_project, site=site)
        self._logs = LogCollector(self._api)
        self._metrics = MetricsSource(self._api, names.selector(plan))
        self._tasks = Tasks(loop)
        self._controllers = PodControllers(plan)
        self._tracker = ReplicaTracker(run_dir, TrackedPod, loop, report)
        self._pods = PodWatch(self._tracker, loop, report, identify=self._cluster.ownership.known_incarnation)
        self._usage_totals = UsageTotals(loop.time, time.time, boot_id())
        self._attempt = 0  # the last that was started
        self._is_released = False  # pods of this attempt no longer wait for names, since a replica has ended
        self._launched: set[Incarnation] = set()  # by this session
        self._unwanted: set[str] = set()  # Jobs that must not be created any more
        self._warnings: set[str] = set()
        for work in (self._watch_pods(), self._watch_events(), self._perform_actions()):
            self._tasks.begin(work)

    def events(self) -> AsyncIterator[Event]:
        """Return the events of the run's pods."""
        return self._events

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placed:
        """Return the DNS name that the pod of each replica will have; nothing is claimed."""
        del keep
        self._placed = plan
        return Placed(place(plan, attempt=attempt), tuple(find_warnings(plan)))

    async def start(self, launches: Sequence[Launch]) -> None:
        """Create the Jobs of the launches that have none."""
        for problem in find_problems(self._placed, launches):
            raise EngineError(problem)
        if launches:
            self._start(self._placed, launches)

    def _start(self, plan: Plan, launches: Sequence[Launch]) -> None:
        incarnations = {Incarnation(each.replica.id, each.attempt, each.incarnation): each for each in launches}
        self._attempt = launches[0].attempt
        kept = self._pods.track(incarnations)
        wanted = [each.id for each in kept if each.end is None and each.id not in self._launched]
        self._launched.update(incarnations)
        for each in kept:
            each.controllers = self._controllers.names_of(each.id)
        if wanted:
            has_ended_replica = self._has_ended_replica()
            starts = [incarnations[each] for each in wanted]
            self._tasks.begin(self._submit(self._start_jobs(plan, starts, has_ended_replica=has_ended_replica), wanted))
        self._is_released = False
        self._release_waiting()

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Start the Job of a helper, unless it was started; the image is built by a process of this machine."""
        if helper == BUILD and self._build:
            self._build.start(plan, incarnation=incarnation)
            return
        (kept,) = self._pods.track([Incarnation(helper, 0, incarnation)])
        if kept.end is None and kept.id not in self._launched:
            self._launched.add(kept.id)
            kept.controllers = self._controllers.names_of(kept.id)
            self._tasks.begin(self._submit(self._start_helper(plan, kept.id), [kept.id]))

    async def stop(self, incarnations: Sequence[Incarnation], *, grace_seconds: float) -> None:
        """Begin to stop these incarnations: delete their pods, or the Jobs of those without a pod; report each end."""
        builds = [each for each in incarnations if each.replica == BUILD]
        if self._build and builds:
            self._build.stop(builds, grace_seconds=grace_seconds)
        grace_seconds = max(grace_seconds, _LEAST_GRACE_SECONDS)
        tracked = self._pods.track(each for each in incarnations if each not in builds)
        left = [each for each in tracked if each.end is None]
        for each in left:
            each.is_stopped = True
            self._unwanted.add(names.job(self._plan, each.id.replica, each.id.attempt, each.id.incarnation))
        if self._is_operated and any(_is_needed(each.id) for each in left):
            self._tasks.begin(self._stop_operated(left, grace_seconds))
        else:
            for each in left:
                self._tasks.begin(self._stop_one(each, grace_seconds))

    async def release(self, *, forced: bool = False) -> None:
        """Delete all objects of the run except claims; close the session."""
        del forced
        if self._tasks.is_open:
            is_gone = False
            try:
                async with asyncio.timeout(_REMOVE_SECONDS):
                    is_gone = await self._cluster.objects.remove()
            except TimeoutError:
                pass
            except DrumlineError as error:
                self._warn(error.message)
            if not is_gone:
                self._log_leftovers()
            await self.disconnect()

    async def disconnect(self) -> None:
        """Cancel all tasks and close all connections; pods are not affected."""
        await self._logs.close()
        await self._tasks.close()
        await self._api.client.aclose()

    def traces(self) -> Iterator[Path]:
        """Return the folders of all incarnations that run, and of those that ended since the last call."""
        yield from self._tracker.traces()
        if self._build:
            yield from self._build.traces()

    async def usage(self, *, watched: bool) -> Sequence[Usage]:
        """Return the last usage that the cluster has reported of each incarnation."""
        incarnations = [each for each in self._tracker if each.pod and each.take_measured()]
        pods = {each.pod_name: each.node for each in incarnations if not each.is_over}
        if pods and self._usage_totals.is_due(watched=watched):
            self._tasks.begin(self._measure(pods))
        return [*self._usage_totals.measure(incarnations)]

    async def _measure(self, pods: Mapping[str, str]) -> None:
        self._usage_totals.add(await self._metrics.read(pods))

    def _release_waiting(self) -> None:
        """Let waiting pods stop waiting for names, if a replica has ended."""
        if (
            awaits_names(self._plan)
            and not self._is_released
            and self._has_waiting_replica()
            and self._has_ended_replica()
        ):
            self._is_released = True
            self._tasks.begin(self._cluster.release_waiting())

    def _has_waiting_replica(self) -> bool:
        """Return whether a replica of this attempt may still wait for names; in a TFJob it does so after its start."""
        looks_up = self._plan.engine == "tfjob"
        return any(not each.end and (looks_up or not each.has_started) for each in self._of_attempt())

    def _has_ended_replica(self) -> bool:
        """Return whether a replica of this attempt has succeeded; a failure ends the attempt by itself."""
        return any(each.end and each.end.exit.ok for each in self._of_attempt())

    def _of_attempt(self) -> Iterator[TrackedPod]:
        return (each for each in self._tracker if each.id.attempt == self._attempt and not each.id.replica.is_helper)

    async def _stop_one(self, kept: TrackedPod, grace_seconds: float) -> None:
        """Delete the pod of an incarnation, or its Job if it has no pod, when all existing pods are known."""
        await self._pods.listed.wait()
        if kept.end is None and kept.pod is None:
            stop = partial(self._cluster.delete_controller, kept.id, self._unneeded_controller(kept.id))
            existed = await self._cluster.retry(stop)
            if existed is not None:
                self._pods.end_without_pod(kept.id, _STOPPED_EARLY if existed else NEVER_STARTED)
        elif kept.end is None:
            self._end(kept, grace_seconds)

    def _unneeded_controller(self, incarnation: Incarnation) -> str | None:
        """Return the Job that would create the pod of this incarnation; None if other incarnations need it."""
        (controller, *_) = self._controllers.names_of(incarnation)
        replica, attempt = incarnation.replica, incarnation.attempt
        if replica.is_helper or controller == names.job(self._plan, replica, attempt, incarnation.incarnation):
            return controller
        others = [Incarnation(each.id, attempt, 0) for each in self._plan.replicas]
        sharing = [self._tracker.find(each) for each in others if self._controllers.names_of(each)[0] == controller]
        return controller if all(each.is_stopped or each.end for each in sharing) else None

    async def _stop_operated(self, left: Sequence[TrackedPod], grace_seconds: float) -> None:
        """Wait for the operator to end its object, as it does when a replica has ended, or delete the object."""
        await self._pods.listed.wait()
        incarnations = [each.id for each in left if each.end is None]
        if not incarnations:
            return
        ends = [each.end.exit for each in self._tracker if each.id.attempt == incarnations[0].attempt and each.end]
        acts = any(end.ok for end in ends) or (self._plan.engine == "jobset" and bool(ends))
        may_wait = acts and grace_seconds > _LEAST_GRACE_SECONDS
        await self._cluster.retry(partial(self._stop_all, incarnations, grace_seconds, may_wait=may_wait))

    async def _stop_all(self, incarnations: Sequence[Incarnation], grace_seconds: float, *, may_wait: bool) -> None:
        """End the operator's object, then the pods that the operator does not delete."""
        assert self._cluster.operator
        if await self._cluster.operator.stop(incarnations[0].attempt, may_wait=may_wait):
            for kept in map(self._tracker.find, incarnations):
                if kept.end is None and kept.pod:
                    self._end(kept, grace_seconds)
        existing = await self._cluster.find_pods(incarnations)
        for each in incarnations:
            if each not in existing:
                self._pods.end_without_pod(each, NEVER_STARTED)

    def _end(self, kept: TrackedPod, grace_seconds: float) -> None:
        """Delete a pod with this grace, unless it was deleted with a shorter one.

        If it was deleted with a longer grace, its processes are killed after this grace.
        """
        if kept.pod is None or (kept.grace_seconds is not None and grace_seconds >= kept.grace_seconds):
            return
        is_late = kept.grace_seconds is not None or is_terminating(kept.pod)
        kept.grace_seconds = grace_seconds
        self._delete(kept)
        if is_late:
            self._tasks.begin(self._cluster.kill_after_grace(kept.pod_name, main_container(kept.pod), grace_seconds))

    def _delete(self, kept: TrackedPod) -> None:
        """Delete a pod with the grace of its stop; with the least grace if it was not stopped."""
        if kept.pod:
            grace = _LEAST_GRACE_SECONDS if kept.grace_seconds is None else kept.grace_seconds
            kept.lost_after = max(kept.lost_after, time.time() + grace + CONFIRM_SECONDS)
            name, uid = kept.pod_name, kept.pod["metadata"]["uid"]

            async def delete() -> None:
                await self._api.delete("Pod", name, grace_seconds=grace, uid=uid)

            self._tasks.begin(self._cluster.retry(delete))

    async def _watch_pods(self) -> None:
        async for change in self._cluster.pod_changes():
            self._pods.handle_pods(change)
            self._release_waiting()
            for pod in change.objects:
                if is_unreachable(pod) and not is_terminating(pod):
                    lost = format_duration(cluster_of(self._plan).lost_seconds)
                    node = text(mapping(pod.get("spec")).get("nodeName"))
                    self._warn(f"{node} does not answer; its pods count as lost in {lost}")

    async def _watch_events(self) -> None:
        async for change in self._cluster.event_changes():
            self._pods.handle_events(change)

    async def _perform_actions(self) -> None:
        """Perform the actions that follow from changes of pods."""
        while True:
            match await self._pods.due.get():
                case FollowLog(kept, container):
                    self._logs.follow(kept.pod_name, container, kept.folder / LOG)
                case DrainLog(kept, container):
                    self._tasks.begin(self._drain(kept, container))
                case DeletePod(kept):
                    self._delete(kept)

    async def _drain(self, kept: TrackedPod, container: str) -> None:
        """Copy the rest of a log; then the end of its replica can be reported."""
        longest = _STOPPED_DRAIN_SECONDS if kept.is_stopped else LONGEST_FINISH_SECONDS
        path = kept.folder / LOG
        missing = await self._logs.finish(kept.pod_name, container, path, _DRAIN_SECONDS, longest_seconds=longest)
        # The log of a replica that was stopped before it was followed is not expected.
        if missing and not kept.is_stopped and kept.pod and has_run(kept.pod, container):
            self._warn(f"the end of the log of {kept.id.replica} may be missing: {missing}")
        self._tracker.complete(kept)

    def _warn(self, message: str) -> None:
        if message not in self._warnings:
            self._warnings.add(message)
            self._report(EngineWarned(self._attempt, message))

    def _log_leftovers(self) -> None:
        """Log the command that lists the objects that are left in the cluster."""
        where = self._api.where
        shows = f"{where.kubectl} -n {where.namespace} get pods,jobs,configmaps -l {names.selector(self._plan)}"
        log(f"objects of the run are left in the cluster; `{shows}` lists them")

    async def _start_jobs(self, plan: Plan, launches: Sequence[Launch], *, has_ended_replica: bool) -> None:
        if missing := await self._cluster.find_unsubmitted(plan, launches):
            parts = await self._share(plan)
            await self._cluster.start(plan, missing, parts, self._unwanted, has_ended_replica=has_ended_replica)

    async def _start_helper(self, plan: Plan, helper: Incarnation) -> None:
        await self._cluster.prepare(plan, helper, await self._share(plan), self._unwanted)

    async def _share(self, plan: Plan) -> int:
        parts, project = await self._cluster.objects.create_shared(plan, self._pack)
        for warning in project.warnings if project else ():
            self._warn(warning)
        if project and project.files:
            self._report(ProjectCarried(project.files, project.size_bytes))
        return parts

    async def _submit(self, work: Work, incarnations: Sequence[Incarnation]) -> None:
        """Create objects; report a failure, after which they may be created again."""
        try:
            await work
        except DrumlineError as error:
            self._launched.difference_update(incarnations)
            attempt = self._attempt if incarnations[0].replica.is_helper else incarnations[0].attempt
            self._report(EngineFailed(attempt, error.message))


def _is_needed(incarnation: Incarnation) -> bool:
    """Return whether the other replicas need this one; an evaluator or a helper can be stopped alone."""
    return not incarnation.replica.is_helper and incarnation.replica.role != "evaluator"
