"""What is done in the cluster for one run: watching, submitting, deleting and fetching."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from drumline.engine.incarnation import Incarnation
from drumline.engine.kubernetes import manifests, names
from drumline.engine.kubernetes.api import Api, Change
from drumline.engine.kubernetes.code import Code
from drumline.engine.kubernetes.logs import LONGEST_FINISH_SECONDS, Collector
from drumline.engine.kubernetes.makers import OPERATED
from drumline.engine.kubernetes.metrics import Reading, Source
from drumline.engine.kubernetes.operators import Operator
from drumline.engine.kubernetes.orders import Orders, Shared
from drumline.engine.kubernetes.ownership import Ownership
from drumline.engine.kubernetes.paths import Object
from drumline.engine.kubernetes.pause import Pause
from drumline.engine.kubernetes.place import awaits_names
from drumline.engine.kubernetes.refusal import AwayError, RefusedError
from drumline.engine.kubernetes.waits import slim_event
from drumline.errors import DrumlineError
from drumline.plan.types import Launch, Plan

_DRAIN_SECONDS = 10.0  # for the end of a log whose pod has ended; its node may be gone
_STOPPED_DRAIN_SECONDS = 60.0  # for all of it, of a replica that was stopped
_KILL = ("/bin/sh", "-c", "kill -KILL -1")  # all that is in the pod, but for whoever asks
_HURRY_SECONDS = 30.0  # for a server that does not answer
_REFUSED_SECONDS = 10.0  # before a cluster is asked again that said no


class There:
    """What is done for one run; each method is a coroutine, and calls what is to be told of it."""

    def __init__(
        self, api: Api, plan: Plan, folder: Path, pack: Callable[[Plan], Code], warn: Callable[[str], None]
    ) -> None:
        self.where = api.where
        self._api = api
        self._plan = plan
        self._pack = pack
        self._warn = warn
        self.ownership = Ownership(api, plan, folder)
        self._orders = Orders(api, self.ownership, plan)
        self._operator = Operator(api, self._orders, self.ownership, plan) if plan.engine in OPERATED else None
        self._collector = Collector(api)
        self._source = Source(api, names.selector(plan))
        self._packed: Code | None = None  # and not told of yet

    async def watch_pods(self, see: Callable[[Change], None]) -> None:
        """Bring everything that happens to the run's pods; pods of others are left out."""
        while True:
            try:
                async for change in self._api.watch("Pod", names.selector(self._plan), accept=self._accept_pod):
                    see(change)
            except DrumlineError as error:
                # A token that has run out, or a right that was taken away: the pods know nothing of it.
                self._warn(error.message)
                await asyncio.sleep(_REFUSED_SECONDS)

    async def watch_events(self, hear: Callable[[Change], None]) -> None:
        """Bring what the cluster's events say; without the right to read them, a little less is known."""
        with suppress(DrumlineError):
            async for change in self._api.watch("Event", accept=_accept_event):
                hear(change)

    async def _accept_pod(self, pod: Object) -> Object | None:
        return pod if await self.ownership.recognize(pod) else None

    async def start(
        self,
        plan: Plan,
        launches: Sequence[Launch],
        secrets: Callable[[Plan], Mapping[str, str]],
        unwanted: set[str],
        carried: Callable[[Code], None],
        *,
        has_begun: bool,
    ) -> None:
        """Submit these, but for what is there and for what nobody wants any more when its turn comes.

        `has_begun` says that somebody of their line has ended already, for whom none of them should wait.
        """
        if self._operator is None:
            there = await self._orders.existing("Job")
            launches = [
                each
                for each in launches
                if names.job(plan, each.replica.id, each.attempt, each.incarnation) not in there
            ]
        if not launches:
            return
        parts = await self._share(plan, secrets, carried)
        if awaits_names(plan) and (has_begun or launches[0].attempt):
            await self._orders.mark_begun(has_begun=has_begun)
        made = manifests.attempt_objects(plan, launches, _Parts(parts))
        if self._operator is None:
            await self._orders.create(made, lambda job: job["metadata"]["name"] not in unwanted)
        elif names.job(plan, launches[0].replica.id, launches[0].attempt, launches[0].incarnation) not in unwanted:
            await self._operator.start(launches[0].attempt, made)

    async def prepare(
        self,
        plan: Plan,
        life: Incarnation,
        secrets: Callable[[Plan], Mapping[str, str]],
        unwanted: set[str],
        carried: Callable[[Code], None],
    ) -> None:
        """Submit the Job of a helper, unless nobody wants it any more."""
        parts = await self._share(plan, secrets, carried)
        job = manifests.preparation(plan, life.replica, _Parts(parts), incarnation=life.incarnation)
        await self._orders.create([job], lambda job: job["metadata"]["name"] not in unwanted)

    async def let_go(self) -> None:
        """Have nobody of the line wait for a name any more: a kubelet brings that into its pods, within a minute or so.

        Who may not say so has them wait, as long as starting may take.
        """
        with suppress(RefusedError):
            await self._orders.mark_begun(has_begun=True)

    async def insist(self, errand: Callable[[], Awaitable[object]]) -> None:
        """Do this until it is done, since whoever asked for it waits for what comes of it."""
        while True:
            try:
                await errand()
            except DrumlineError as error:
                self._warn(error.message)
                await asyncio.sleep(_REFUSED_SECONDS)
            else:
                return

    async def delete_pod(self, name: str, uid: str, grace_seconds: float) -> None:
        """Delete a pod, if it is still that one."""
        await self._api.delete("Pod", name, grace_seconds=grace_seconds, uid=uid)

    async def hurry(self, pod: str, container: str, grace_seconds: float) -> None:
        """Kill everybody in a pod whose kubelet waits for the end of a longer grace, which no second order shortens."""
        from drumline.engine.kubernetes.shell import execute, nowhere  # noqa: PLC0415 - few are in such a hurry

        pause = Pause(_HURRY_SECONDS)
        await asyncio.sleep(grace_seconds)
        with suppress(DrumlineError, TimeoutError):  # where that is not allowed or possible, the end is waited for
            while True:
                try:
                    async with asyncio.timeout(_HURRY_SECONDS):
                        await execute(self._api, pod, container, _KILL, stdout=nowhere, stderr=nowhere)
                except AwayError as trouble:
                    await pause.take(trouble)
                else:
                    return

    async def stop_early(self, life: Incarnation, maker: str | None, then: Callable[[Incarnation, bool], None]) -> None:
        """Delete what would have made the pod of a life that has none; say whether there was such a thing."""
        was_there = await self.ownership.delete("Job", maker) if maker else False
        if not await self._has_pods([life]):  # one that came in between the watch tells of
            then(life, was_there)

    async def stop_all(
        self,
        lives: Sequence[Incarnation],
        *,
        may_wait: bool,
        delete: Callable[[Sequence[Incarnation]], None],
        then: Callable[[Incarnation, bool], None],
    ) -> None:
        """End an operator's object, perhaps by waiting for the operator; then all pods but those that it deletes."""
        assert self._operator
        if await self._operator.stop(lives[0].attempt, may_wait=may_wait):
            delete(lives)
        there = await self._has_pods(lives)
        for life in lives:
            if life not in there:
                then(life, False)

    async def remove(self, then: Callable[[], None]) -> None:
        """Remove everything of the run; call if something does not go."""
        try:
            is_gone = await self._orders.remove()
        except DrumlineError as error:
            self._warn(error.message)
            is_gone = False
        if not is_gone:
            then()

    async def close(self) -> None:
        """End what goes on by itself."""
        await self._collector.close()

    async def follow(self, pod: str, container: str, path: Path) -> None:
        """Bring a log here as it grows."""
        self._collector.follow(pod, container, path)

    async def drain(
        self, pod: str, container: str, path: Path, then: Callable[[str], None], *, is_stopped: bool
    ) -> None:
        """Bring the end of a log here; say why that is not all, if so."""
        longest = _STOPPED_DRAIN_SECONDS if is_stopped else LONGEST_FINISH_SECONDS
        missing = await self._collector.finish(pod, container, path, _DRAIN_SECONDS, longest_seconds=longest)
        then(missing)

    async def measure(self, pods: Mapping[str, str], take: Callable[[Iterable[Reading]], None]) -> None:
        """Bring what these pods use, which are on these nodes."""
        take(await self._source.read(pods))

    async def _share(
        self, plan: Plan, secrets: Callable[[Plan], Mapping[str, str]], carried: Callable[[Code], None]
    ) -> int:
        parts = await self._orders.share(partial(self._shared, plan, secrets))
        code, self._packed = self._packed, None
        if code:
            carried(code)
        return parts

    def _shared(self, plan: Plan, secrets: Callable[[Plan], Mapping[str, str]]) -> Shared:
        code = self._packed = self._pack(plan)
        return Shared(manifests.shared_objects(plan, code, secrets(plan)), len(code.contents))

    async def _has_pods(self, lives: Sequence[Incarnation]) -> set[Incarnation]:
        there = {self.ownership.settled(each) for each in await self.ownership.list("Pod")}
        return {life for life in lives if life in there}


async def _accept_event(event: Object) -> Object | None:
    return slim_event(event)


class _Parts:
    """As many parts as were carried; what is in them does not matter to a pod."""

    def __init__(self, number: int) -> None:
        self.contents: tuple[dict[str, bytes], ...] = ({},) * number


def life_of(launch: Launch) -> Incarnation:
    """The life that a launch begins."""
    return Incarnation(launch.replica.id, launch.attempt, launch.incarnation)
