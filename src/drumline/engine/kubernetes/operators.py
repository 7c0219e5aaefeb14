"""The object from which an operator creates pods: a JobSet or a TFJob.

An operator deletes pods after success or failure. A JobSet also restarts all pods, within its limit: that is the next
attempt, for which nothing is created. Deleting a single pod would cause a restart, so replicas are stopped by deleting
the whole object.
"""

from __future__ import annotations

import asyncio

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.answer_fields import integer, mapping, mappings
from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.controllers import OPERATOR_KINDS
from drumline.engine.kubernetes.objects import RunObjects
from drumline.engine.kubernetes.ownership import Ownership, attempt_of
from drumline.engine.kubernetes.paths import Object, name_of
from drumline.errors import EngineError
from drumline.plan.types import Plan

_OVER = ("Completed", "Succeeded", "Failed")
_POLL_SECONDS = 0.3
_GONE_SECONDS = 120.0  # for objects that are deleted with it
_OPERATOR_SECONDS = 15.0  # for an operator to act


class Operator:
    """Creates, polls and deletes the operator's object of one run."""

    def __init__(self, api: Api, objects: RunObjects, ownership: Ownership, plan: Plan) -> None:
        self._api = api
        self._objects = objects
        self._ownership = ownership
        self._plan = plan
        self._kind = OPERATOR_KINDS[plan.engine]
        self._lock = asyncio.Lock()  # one start or stop at a time

    async def start(self, attempt: int, made: list[Object]) -> None:
        """Create the object of an attempt, unless an existing one restarts as this attempt."""
        async with self._lock:
            before = await self._latest(attempt)
            if before is None or not await self._restarts_as(before, attempt):
                if self._kind == "JobSet":
                    await self._free_name(attempt)
                elif before and not _is_over(before):
                    await self._delete(before)
                await self._objects.create(made, lambda _: True)

    async def stop(self, attempt: int, *, may_wait: bool) -> bool:
        """End an attempt; return False if the operator ended it. With `may_wait`, give the operator time to do so."""
        async with self._lock:
            deadline = _now() + (_OPERATOR_SECONDS if may_wait else 0.0)
            while existing := await self._latest(attempt):
                if _is_over(existing) or _attempt(existing) > attempt:
                    return False
                if _now() >= deadline:
                    await self._delete(existing)
                    return True
                await asyncio.sleep(_POLL_SECONDS)
            return True

    async def _free_name(self, attempt: int) -> None:
        """Delete the JobSet of another attempt, and wait until its Jobs and Service are gone.

        A JobSet of this attempt stays: a killed supervisor may have created it.
        """
        name, deadline = names.service(self._plan), _now() + _GONE_SECONDS
        for each in await self._ownership.list(self._kind):
            if _attempt(each) != attempt:
                await self._delete(each)
        while await self._ownership.list("Job", f"{names.JOBSET_NAME}={name}") or await self._has_service(name):
            if (existing := await self._latest(attempt)) and _attempt(existing) >= attempt:
                return
            if _now() >= deadline:
                raise EngineError(f"objects of the JobSet {name} are not deleted, and the next attempt needs its name")
            await asyncio.sleep(_POLL_SECONDS)

    async def _has_service(self, name: str) -> bool:
        return bool(await self._api.list("Service", fields=f"metadata.name={name}"))

    async def _restarts_as(self, existing: Object, attempt: int) -> bool:
        """Return whether an object is in this attempt, or restarts as this attempt in time."""
        deadline = _now() + _OPERATOR_SECONDS
        while _attempt(existing) < attempt:
            if _is_over(existing) or self._kind != "JobSet" or _now() >= deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
            existing = await self._api.read(self._kind, name_of(existing))
        return True

    async def _latest(self, attempt: int) -> Object | None:
        """Return the object that was made last, for this attempt or an earlier one."""
        found = await self._ownership.list(self._kind)
        made = [each for each in found if attempt_of(each) <= attempt and "deletionTimestamp" not in each["metadata"]]
        return max(made, key=attempt_of, default=None)

    async def _delete(self, an_object: Object) -> None:
        await self._api.delete(self._kind, name_of(an_object), uid=an_object["metadata"]["uid"])


def _attempt(an_object: Object) -> int:
    """Return the attempt of an object: the one for which it was made, plus its restarts."""
    return attempt_of(an_object) + (integer(mapping(an_object.get("status")).get("restarts")) or 0)


def _is_over(an_object: Object) -> bool:
    """Return whether the object has completed, succeeded or failed."""
    conditions = mappings(mapping(an_object.get("status")).get("conditions"))
    return any(each.get("type") in _OVER and each.get("status") == "True" for each in conditions)


def _now() -> float:
    return asyncio.get_running_loop().time()
