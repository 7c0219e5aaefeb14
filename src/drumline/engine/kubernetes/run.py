"""One run in a cluster, as its supervisor sees it: orders go out, and what becomes of everybody comes back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from drumline.engine.kubernetes import manifests, names
from drumline.engine.kubernetes.api import Api, Change
from drumline.engine.kubernetes.code import Code
from drumline.engine.kubernetes.courier import Courier
from drumline.engine.kubernetes.door import open_door
from drumline.engine.kubernetes.lives import NEVER_STARTED, Kept, Lives
from drumline.engine.kubernetes.logs import Collector
from drumline.engine.kubernetes.names import Life
from drumline.engine.kubernetes.orders import Orders, Shared
from drumline.engine.protocol import Loop, Tell
from drumline.errors import DrumlineError, EngineError
from drumline.plan.types import Launch, Plan, ReplicaId, Secret
from drumline.run.event import EngineFailed, EngineWarned, Exit, ProjectCarried
from drumline.run.traces import LOG
from drumline.words import listed

_DRAIN_SECONDS = 10.0  # for the end of a log whose pod has ended; its node may be gone
_REMOVE_SECONDS = 600.0
_LEAST_GRACE_SECONDS = 1.0  # with none at all, a pod is forgotten while it may still run
_STOPPED_EARLY = Exit(message="it was stopped before it started")


class ClusterRun:
    """Starts, stops and watches the replicas of one run; owns the thread that talks to the cluster."""

    def __init__(self, plan: Plan, run_dir: Path, pack: Callable[[Plan], Code], loop: Loop, tell: Tell) -> None:
        cluster = names.cluster(plan)
        client, where = open_door(cluster.context, cluster.namespace)
        self._plan = plan
        self._pack = pack
        self._carried: Code | None = None  # and not told of yet
        self._loop = loop
        self._tell = tell
        self._api = Api(client, where, patience_seconds=inf)
        self._orders = Orders(self._api, plan)
        self._collector = Collector(self._api)
        self._courier = Courier(loop, client.aclose)
        self._lives = Lives(
            run_dir,
            loop,
            tell,
            life_of=lambda pod: names.life_of(plan, pod["metadata"]),
            follow=self._follow,
            drain=self._drain,
            stray=self._delete,
        )
        self._attempt = 0  # that was started or stopped last
        self._launched: set[Life] = set()  # by us
        self._unwanted: set[str] = set()  # Jobs that were to be made, and are not any more
        self._later: list[Callable[[], None]] = []  # as soon as everything there is has been seen
        self._courier.send(self._watch("Pod", names.selector(plan), self._lives.see))
        self._courier.send(self._watch("Event", "", self._lives.hear))

    def start(self, plan: Plan, launches: Sequence[Launch]) -> None:
        """Start whoever was not started before, and tell of all."""
        lives = {_life(each): each for each in launches}
        self._attempt = launches[0].attempt
        kept = self._lives.ask_for(lives)
        wanted = [lives[each.life] for each in kept if each.end is None and each.life not in self._launched]
        self._launched.update(lives)
        for each in kept:
            each.makers = (names.job(plan, *each.life),)
        if wanted:
            self._courier.send(self._start(plan, wanted))

    def prepare(self, plan: Plan, helper: ReplicaId, incarnation: int) -> None:
        """Start the Job of a helper, if nobody did."""
        (kept,) = self._lives.ask_for([Life(helper, 0, incarnation)])
        if kept.end is None and kept.life not in self._launched:
            self._launched.add(kept.life)
            kept.makers = (names.job(plan, *kept.life),)
            self._courier.send(self._prepare(plan, kept.life))

    def stop(self, lives: Sequence[Life], grace_seconds: float) -> None:
        """Delete the pods of these; of who has none, whatever would have made one."""
        for each in self._lives.ask_for(lives):
            if each.end is None:
                each.is_stopped = True
                self._unwanted.add(names.job(self._plan, *each.life))
                self._stop(each, max(grace_seconds, _LEAST_GRACE_SECONDS))

    def release(self) -> None:
        """Remove everything of the run from the cluster but its claims; hang up."""
        if self._courier.is_open:
            self._courier.wait(self._orders.remove(), _REMOVE_SECONDS)
            self._courier.close()

    def traces(self) -> Iterator[Path]:
        """The folders of all lives that go on, and of those that ended since this was asked last."""
        for each in self._lives:
            if each.is_asked_for and each.pod and not each.looked_at:
                each.looked_at = each.told_end
                yield each.folder

    def living(self) -> Iterator[Kept]:
        """All lives of the line that go on."""
        return (each for each in self._lives if each.goes_on and not each.life.replica.is_helper)

    def call_soon(self, call: Callable[[], object]) -> None:
        """Have this called by the supervisor's loop."""
        self._loop.call_later(0.0, call)

    # --- here ---------------------------------------------------------------------------------------------------------

    def _stop(self, kept: Kept, grace_seconds: float) -> None:
        if not self._lives.is_listed:
            self._later.append(partial(self._stop, kept, grace_seconds))
        elif kept.end is None:
            if kept.pod is None:
                self._courier.send(self._stop_early(kept.life))
            elif kept.grace_seconds is None or grace_seconds < kept.grace_seconds:
                kept.grace_seconds = grace_seconds
                self._delete(kept)

    def _delete(self, kept: Kept) -> None:
        """Delete a pod, as gently as it was asked for; of who was not, its Job is over and it should not be."""
        if kept.pod:
            grace = _LEAST_GRACE_SECONDS if kept.grace_seconds is None else kept.grace_seconds
            metadata = kept.pod["metadata"]
            self._courier.send(self._delete_pod(metadata["name"], metadata["uid"], grace))

    def _follow(self, kept: Kept, container: str) -> None:
        self._courier.send(self._follow_there(kept.pod_name, container, kept.folder / LOG))

    def _drain(self, kept: Kept, container: str, then: Callable[[], None]) -> None:
        self._courier.send(self._drain_there(kept.pod_name, container, kept.folder / LOG, then))

    def _arrived(self, code: Code) -> None:
        for remark in code.remarks:
            self._tell(EngineWarned(self._attempt, remark))
        if code.files:
            self._tell(ProjectCarried(code.files, code.size_bytes))

    def _failed(self, attempt: int, lives: Sequence[Life], message: str) -> None:
        self._launched.difference_update(lives)
        self._tell(EngineFailed(attempt, message))

    def _see(self, see: Callable[[Change], None], change: Change) -> None:
        see(change)
        if self._lives.is_listed and self._later:
            later, self._later = self._later, []
            for call in later:
                call()

    # --- over there ---------------------------------------------------------------------------------------------------

    async def _watch(self, kind: str, selector: str, see: Callable[[Change], None]) -> None:
        try:
            async for change in self._api.watch(kind, selector):
                self._courier.bring(self._see, see, change)
        except DrumlineError as error:
            if kind == "Pod":  # who may not read events knows a little less
                self._courier.bring(self._tell, EngineFailed(self._attempt, error.message))

    async def _start(self, plan: Plan, launches: Sequence[Launch]) -> None:
        try:
            there = await self._orders.existing("Job")
            missing = [each for each in launches if names.job(plan, *_life(each)) not in there]
            if not missing:
                return
            parts = await self._share(plan)
            made = manifests.attempt_objects(plan, missing, _Parts(parts))
            await self._orders.create(made, lambda job: job["metadata"]["name"] not in self._unwanted)
        except DrumlineError as error:
            lives = [_life(each) for each in launches]
            self._courier.bring(self._failed, launches[0].attempt, lives, error.message)

    async def _prepare(self, plan: Plan, life: Life) -> None:
        try:
            parts = await self._share(plan)
            make: Any = manifests
            job = make.preparation(plan, life.replica, _Parts(parts), incarnation=life.incarnation)
            await self._orders.create([job], lambda job: job["metadata"]["name"] not in self._unwanted)
        except DrumlineError as error:
            self._courier.bring(self._failed, self._attempt, [life], error.message)

    async def _share(self, plan: Plan) -> int:
        parts = await self._orders.share(partial(self._shared, plan))
        code, self._carried = self._carried, None
        if code:
            self._courier.bring(self._arrived, code)
        return parts

    def _shared(self, plan: Plan) -> Shared:
        code = self._carried = self._pack(plan)
        return Shared(manifests.shared_objects(plan, code, _secrets(plan)), len(code.contents))

    async def _stop_early(self, life: Life) -> None:
        was_there = await self._api.delete("Job", names.job(self._plan, *life))
        pods = await self._api.list("Pod", _selector(self._plan, life))
        if pods:  # it came in between, and the watch tells of it
            return
        self._courier.bring(self._lives.end_unseen, life, _STOPPED_EARLY if was_there else NEVER_STARTED)

    async def _delete_pod(self, name: str, uid: str, grace_seconds: float) -> None:
        await self._api.delete("Pod", name, grace_seconds=grace_seconds, uid=uid)

    async def _follow_there(self, pod: str, container: str, path: Path) -> None:
        self._collector.follow(pod, container, path)

    async def _drain_there(self, pod: str, container: str, path: Path, then: Callable[[], None]) -> None:
        await self._collector.finish(pod, container, path, _DRAIN_SECONDS)
        self._courier.bring(then)


class _Parts:
    """As many parts as were carried; what is in them does not matter to a pod."""

    def __init__(self, number: int) -> None:
        self.contents: tuple[dict[str, bytes], ...] = ({},) * number


def _life(launch: Launch) -> Life:
    return Life(launch.replica.id, launch.attempt, launch.incarnation)


def _selector(plan: Plan, life: Life) -> str:
    labels = names.labels_of(plan, *life)
    keys = (names.RUN, names.ROLE, names.INDEX, names.ATTEMPT, names.INCARNATION)
    return ",".join(f"{key}={labels[key]}" for key in keys)


def _secrets(plan: Plan) -> dict[str, str]:
    given = [value for each in plan.replicas for value in each.env.values()]
    given += [value for each in plan.preparations for value in each.env.values()]
    wanted = {value.variable for value in given if isinstance(value, Secret)}
    if missing := sorted(name for name in wanted if name not in os.environ):
        raise EngineError(f"the secrets {listed(missing)} are not set where this supervisor runs")
    return {name: os.environ[name] for name in wanted}
