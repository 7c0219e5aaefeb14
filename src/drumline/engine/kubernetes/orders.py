"""What is done to a run's objects in the cluster.

What was done before is not done again: objects are known by their names, and what belongs to the run as a whole is
made once and marked as whole, so that a supervisor that returns need not have what the first one carried there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.makers import OPERATED
from drumline.engine.kubernetes.ownership import Ownership
from drumline.engine.kubernetes.paths import Object, Objects, name_of
from drumline.engine.kubernetes.place import BEGUN
from drumline.engine.kubernetes.planned import cluster_of
from drumline.engine.kubernetes.pods import is_silent, is_to_go
from drumline.engine.kubernetes.shape import mapping, number
from drumline.errors import EngineError
from drumline.plan.types import Plan
from drumline.record import Record

WHOLE = f"{names.PREFIX}/parts"  # on the owner: everything shared is there, and how many parts were carried
_MAKERS = ("Job", *OPERATED.values())
_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0
_STUCK_SECONDS = 60.0  # for what does not go: a node may be gone, or somebody else may hold it
_MANY = 1 << 20


class Shared(Record):
    """What belongs to a run as a whole, the owner first; and how many parts are carried."""

    objects: Objects
    parts: int


def kinds_of(plan: Plan) -> tuple[str, ...]:
    """What a run of this plan has objects of, those of its operator first; what it has none of, we may not list."""
    kinds = [kind for engine, kind in OPERATED.items() if engine == plan.engine]
    kinds.append("Pod")
    if plan.engine != "tfjob" or plan.preparations:
        kinds.append("Job")
    kinds += ["Service", "ConfigMap"]
    if names.secrets(plan):
        kinds.append("Secret")
    if cluster_of(plan).network_policy:
        kinds.append("NetworkPolicy")
    return tuple(kinds)


class Orders:
    """Makes and removes the objects of one run."""

    def __init__(self, api: Api, ownership: Ownership, plan: Plan) -> None:
        self._api = api
        self._ownership = ownership
        self._plan = plan
        self._parts: int | None = None
        self._making = asyncio.Lock()
        self._operated = tuple(kind for engine, kind in OPERATED.items() if engine == plan.engine)

    async def share(self, make: Callable[[], Shared]) -> int:
        """See to it that what the run shares is there; return how many parts were carried, perhaps by another."""
        async with self._making:
            if self._parts is None:
                self._parts = await self._share(make)
            return self._parts

    async def _share(self, make: Callable[[], Shared]) -> int:
        found = await self._ownership.find_owner()
        if found and (mark := mapping(found["metadata"].get("annotations")).get(WHOLE)) is not None:
            parts = number(mark)
            if parts is None:
                raise EngineError(f"the ConfigMap {name_of(found)} was changed: {WHOLE} is no number")
            return parts
        shared = await asyncio.to_thread(make)
        owner, *others = shared.objects
        if found is None:
            await self._ownership.create_owner(owner)
        # Of somebody who did not come to the end of this, nobody knows what he carried.
        carried = {name_of(each) for each in others if each["kind"] == "ConfigMap"}
        for each in await self._ownership.list("ConfigMap"):
            if name_of(each) in carried:
                await self._api.delete("ConfigMap", name_of(each), uid=each["metadata"]["uid"])
        await self._create_all(others)
        mark = {"metadata": {"annotations": {WHOLE: str(shared.parts)}}}
        await self._api.patch("ConfigMap", names.base(self._plan), mark)
        return shared.parts

    async def create(self, objects: Sequence[Object], is_wanted: Callable[[Object], bool]) -> None:
        """Create those of an attempt's objects that are still wanted, when their turn comes; the first ones first."""
        jobs = [each for each in objects if each["kind"] in _MAKERS]
        await self._create_all(each for each in objects if each["kind"] not in _MAKERS)

        async def create(an_object: Object) -> None:
            if is_wanted(an_object):
                await self._ownership.create(an_object)

        done = await asyncio.gather(*map(create, jobs), return_exceptions=True)
        for failed in done:
            if isinstance(failed, BaseException):
                raise failed

    async def _create_all(self, objects: Iterable[Object]) -> None:
        """Create all of these, many at once; raise the first refusal."""
        await asyncio.gather(*map(self._ownership.create, objects))

    async def mark_begun(self, *, has_begun: bool) -> None:
        """Say on the owner, which pods have among their parts, whether somebody of the line has ended already."""
        mark = {"data": {BEGUN: "somebody has ended" if has_begun else None}}
        await self._api.patch("ConfigMap", names.base(self._plan), mark)

    async def existing(self, kind: str) -> set[str]:
        """The names of all objects of a kind that the run has."""
        return {name_of(each) for each in await self._ownership.list(kind)}

    async def remove(self) -> bool:
        """Delete the owner; say whether nothing is left of the run but its claims, or not for want of progress."""
        for kind in self._operated:  # with all that its operator made for it, before nobody owns that any more
            for each in await self._ownership.list(kind):
                uid = each["metadata"]["uid"]
                await self._api.delete(kind, name_of(each), uid=uid, policy="Foreground")
        await self._ownership.delete_owner()
        pause, before, since = _PAUSE_SECONDS, -1, _now()
        while left := await self._left():
            if left != before:
                before, since = left, _now()
            elif _now() - since >= _STUCK_SECONDS:
                return False
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return True

    async def _left(self) -> int:
        """How many objects are left, of the first kind of which any are."""
        for place, kind in enumerate(kinds_of(self._plan)):
            if found := await self._ownership.list(kind):
                for each in found:
                    metadata = each["metadata"]
                    if not metadata.get("ownerReferences"):  # nothing else deletes it
                        await self._api.delete(kind, name_of(each), uid=metadata["uid"])
                    elif kind == "Pod" and is_silent(each) and is_to_go(each):  # its node never says so
                        await self._api.delete(kind, name_of(each), grace_seconds=0, uid=metadata["uid"])
                return len(found) - place * _MANY
        return 0


def _now() -> float:
    return asyncio.get_running_loop().time()
