"""The one object that an operator makes pods of: a JobSet or a TFJob.

An operator cleans up behind a line that has succeeded or failed. A JobSet also starts a line again by itself, as often
as it was told; that is the next attempt, for which nothing has to be made. Whoever deletes one of its pods by hand
would only make it do so: a line is stopped by deleting the whole object.
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
_LOOK_SECONDS = 0.3
_GONE_SECONDS = 120.0  # for what is deleted with the object
_PATIENCE_SECONDS = 15.0  # for an operator that should do something by itself


class Operator:
    """Makes, follows and removes the object of one run."""

    def __init__(self, api: Api, objects: RunObjects, ownership: Ownership, plan: Plan) -> None:
        self._api = api
        self._objects = objects
        self._ownership = ownership
        self._plan = plan
        self._kind = OPERATOR_KINDS[plan.engine]
        self._turn = asyncio.Lock()  # orders are carried out one after the other

    async def start(self, attempt: int, made: list[Object]) -> None:
        """Have the object of an attempt; one that starts its line again as this attempt is the same."""
        async with self._turn:
            before = await self._latest(attempt)
            if before is None or not await self._comes_back(before, attempt):
                if self._kind == "JobSet":
                    await self._free_name(attempt)
                elif before and not _is_over(before):
                    await self._delete(before)
                await self._objects.create(made, lambda _: True)

    async def stop(self, attempt: int, *, may_wait: bool) -> bool:
        """End an attempt: say whether it was deleted, and not ended by the operator, who is given time if he may."""
        async with self._turn:
            deadline = _now() + (_PATIENCE_SECONDS if may_wait else 0.0)
            while there := await self._latest(attempt):
                if _is_over(there) or _attempt(there) > attempt:
                    return False
                if _now() >= deadline:
                    await self._delete(there)
                    return True
                await asyncio.sleep(_LOOK_SECONDS)
            return True

    async def _free_name(self, attempt: int) -> None:
        """Delete the JobSet of another attempt, and wait until nothing is left that another would take for its own.

        One of this very attempt stays: a supervisor that was killed may have asked for it a moment ago.
        """
        name, deadline = names.service(self._plan), _now() + _GONE_SECONDS
        for each in await self._ownership.list(self._kind):
            if _attempt(each) != attempt:
                await self._delete(each)
        while await self._ownership.list("Job", f"{names.JOBSET_NAME}={name}") or await self._has_service(name):
            if (there := await self._latest(attempt)) and _attempt(there) >= attempt:
                return
            if _now() >= deadline:
                raise EngineError(f"what is left of the JobSet {name} does not go, and the next needs its name")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _has_service(self, name: str) -> bool:
        return bool(await self._api.list("Service", fields=f"metadata.name={name}"))

    async def _comes_back(self, there: Object, attempt: int) -> bool:
        """Whether an object is, or will be, in this attempt by itself."""
        deadline = _now() + _PATIENCE_SECONDS
        while _attempt(there) < attempt:
            if _is_over(there) or self._kind != "JobSet" or _now() >= deadline:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
            there = await self._api.read(self._kind, name_of(there))
        return True

    async def _latest(self, attempt: int) -> Object | None:
        """The object that was made last, for this attempt or for one before it."""
        found = await self._ownership.list(self._kind)
        made = [each for each in found if attempt_of(each) <= attempt and "deletionTimestamp" not in each["metadata"]]
        return max(made, key=attempt_of, default=None)

    async def _delete(self, an_object: Object) -> None:
        await self._api.delete(self._kind, name_of(an_object), uid=an_object["metadata"]["uid"])


def _attempt(an_object: Object) -> int:
    """The attempt in which an object is: that for which it was made, and one more for each of its own restarts."""
    return attempt_of(an_object) + (integer(mapping(an_object.get("status")).get("restarts")) or 0)


def _is_over(an_object: Object) -> bool:
    """Whether an operator has done with it."""
    conditions = mappings(mapping(an_object.get("status")).get("conditions"))
    return any(each.get("type") in _OVER and each.get("status") == "True" for each in conditions)


def _now() -> float:
    return asyncio.get_running_loop().time()
