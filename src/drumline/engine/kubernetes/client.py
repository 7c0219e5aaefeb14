"""Requests to the cluster for one run: watching, submitting and deleting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from drumline.engine.kubernetes import manifests, names
from drumline.engine.kubernetes.api import Api, Change
from drumline.engine.kubernetes.api_errors import RefusedError, UnreachableError
from drumline.engine.kubernetes.backoff import Backoff
from drumline.engine.kubernetes.controllers import OPERATOR_KINDS
from drumline.engine.kubernetes.manifests.prepare import preparation
from drumline.engine.kubernetes.objects import RunObjects
from drumline.engine.kubernetes.operators import Operator
from drumline.engine.kubernetes.ownership import Ownership
from drumline.engine.kubernetes.paths import Object, name_of
from drumline.engine.kubernetes.place import awaits_names
from drumline.engine.kubernetes.wait_reason import trim_event
from drumline.errors import DrumlineError
from drumline.plan.types import Launch, Plan
from drumline.run.incarnation import Incarnation

T = TypeVar("T")

_KILL = ("/bin/sh", "-c", "kill -KILL -1")  # every process of the pod but this one
_HURRY_SECONDS = 30.0  # the time limit for killing the processes of a pod
_REFUSED_SECONDS = 10.0  # before a refused request is repeated


class ClusterClient:
    """Sends the requests of one session to the cluster."""

    def __init__(self, api: Api, plan: Plan, folder: Path, warn: Callable[[str], None]) -> None:
        self._api = api
        self._plan = plan
        self._warn = warn
        self.ownership = Ownership(api, plan, folder)
        self.objects = RunObjects(api, self.ownership, plan)
        self.operator = Operator(api, self.objects, self.ownership, plan) if plan.engine in OPERATOR_KINDS else None

    async def pod_changes(self) -> AsyncIterator[Change]:
        """Yield the changes of the run's pods, without end."""
        while True:
            try:
                async for change in self._api.watch("Pod", names.selector(self._plan), accept=self._accept_pod):
                    yield change
            except DrumlineError as error:
                # An expired token or a withdrawn permission does not affect the pods.
                self._warn(error.message)
                await asyncio.sleep(_REFUSED_SECONDS)

    async def event_changes(self) -> AsyncIterator[Change]:
        """Yield the cluster's events; end at once without the permission to read them."""
        with suppress(DrumlineError):
            async for change in self._api.watch("Event", accept=_accept_event):
                yield change

    async def _accept_pod(self, pod: Object) -> Object | None:
        return pod if await self.ownership.recognize(pod) else None

    async def find_unsubmitted(self, plan: Plan, launches: Sequence[Launch]) -> Sequence[Launch]:
        """Return the launches that have no Job yet; with an operator, return all launches."""
        if self.operator:
            return launches
        existing = {name_of(each) for each in await self.ownership.list("Job")}
        return [each for each in launches if _job(plan, each) not in existing]

    async def start(
        self, plan: Plan, launches: Sequence[Launch], parts: int, unwanted: set[str], *, has_ended_replica: bool
    ) -> None:
        """Submit the launches, except those with a Job in `unwanted`.

        `has_ended_replica` is whether a replica of the attempt has ended: then the others must not wait for its name.
        """
        if awaits_names(plan) and (has_ended_replica or launches[0].attempt):
            await self.objects.mark_ended_replica(has_ended_replica=has_ended_replica)
        made = manifests.attempt_objects(plan, launches, parts)
        if self.operator is None:
            await self.objects.create(made, lambda job: job["metadata"]["name"] not in unwanted)
        elif _job(plan, launches[0]) not in unwanted:
            await self.operator.start(launches[0].attempt, made)

    async def prepare(self, plan: Plan, helper: Incarnation, parts: int, unwanted: set[str]) -> None:
        """Submit the Job of a helper, unless it is in `unwanted`."""
        job = preparation(plan, helper.replica, parts=parts, incarnation=helper.incarnation)
        await self.objects.create([job], lambda job: job["metadata"]["name"] not in unwanted)

    async def release_waiting(self) -> None:
        """Let pods stop waiting for names; kubelets copy this into the pods within about a minute.

        Without the permission for this, pods wait until the start timeout.
        """
        with suppress(RefusedError):
            await self.objects.mark_ended_replica(has_ended_replica=True)

    async def retry(self, request: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request until it succeeds; return its result."""
        while True:
            try:
                return await request()
            except DrumlineError as error:
                self._warn(error.message)
                await asyncio.sleep(_REFUSED_SECONDS)

    async def kill_after_grace(self, pod: str, container: str, grace_seconds: float) -> None:
        """Kill all processes of a pod after a grace; a second delete does not shorten the grace of the first."""
        from drumline.engine.kubernetes.pod_exec import discard, execute  # noqa: PLC0415 - seldom needed

        pause = Backoff(_HURRY_SECONDS)
        await asyncio.sleep(grace_seconds)
        with suppress(DrumlineError, TimeoutError):  # if this is not possible, the longer grace applies
            while True:
                try:
                    async with asyncio.timeout(_HURRY_SECONDS):
                        await execute(self._api, pod, container, _KILL, stdout=discard, stderr=discard)
                except UnreachableError as trouble:
                    await pause.wait(trouble)
                else:
                    return

    async def delete_controller(self, incarnation: Incarnation, job: str | None) -> bool | None:
        """Delete the Job with this name, of an incarnation that has no pod; return whether it existed.

        Return None if the incarnation has a pod by now, which the watch reports.
        """
        existed = await self.ownership.delete("Job", job) if job else False
        return None if await self.find_pods([incarnation]) else existed

    async def find_pods(self, incarnations: Sequence[Incarnation]) -> set[Incarnation]:
        """Return the incarnations that have a pod."""
        existing = {self.ownership.known_incarnation(each) for each in await self.ownership.list("Pod")}
        return {each for each in incarnations if each in existing}


async def _accept_event(event: Object) -> Object | None:
    return trim_event(event)


def _job(plan: Plan, launch: Launch) -> str:
    return names.job(plan, launch.replica.id, launch.attempt, launch.incarnation)
