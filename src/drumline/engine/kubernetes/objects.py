"""What is done to a run's objects in the cluster.

What was done before is not done again: objects are known by their names, and what belongs to the run as a whole is
made once and marked as whole, so that a supervisor that returns need not have what the first one carried there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.answer_fields import label_number, mapping
from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.controllers import OPERATOR_KINDS
from drumline.engine.kubernetes.manifests import shared_objects
from drumline.engine.kubernetes.ownership import Ownership
from drumline.engine.kubernetes.paths import Object, Objects, name_of
from drumline.engine.kubernetes.place import NAMES_NOT_AWAITED
from drumline.engine.kubernetes.plan_options import cluster_of
from drumline.engine.kubernetes.pod_status import is_terminating, is_unreachable
from drumline.engine.kubernetes.project import PackedProject
from drumline.errors import EngineError
from drumline.plan.types import Plan
from drumline.words import listed

WHOLE = f"{names.PREFIX}/parts"  # on the owner: everything shared is there, and how many parts were carried
_CONTROLLER_KINDS = ("Job", *OPERATOR_KINDS.values())
_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0
_STUCK_SECONDS = 60.0  # for what does not go: a node may be gone, or somebody else may hold it
_MANY = 1 << 20


def kinds_of(plan: Plan) -> tuple[str, ...]:
    """What a run of this plan has objects of, those of its operator first; what it has none of, we may not list."""
    kinds = [kind for engine, kind in OPERATOR_KINDS.items() if engine == plan.engine]
    kinds.append("Pod")
    if plan.engine != "tfjob" or plan.preparations:
        kinds.append("Job")
    kinds += ["Service", "ConfigMap"]
    if names.secrets(plan):
        kinds.append("Secret")
    if cluster_of(plan).network_policy:
        kinds.append("NetworkPolicy")
    return tuple(kinds)


class RunObjects:
    """Makes and removes the objects of one run."""

    def __init__(self, api: Api, ownership: Ownership, plan: Plan) -> None:
        self._api = api
        self._ownership = ownership
        self._plan = plan
        self._parts: int | None = None
        self._making = asyncio.Lock()
        self._operated = tuple(kind for engine, kind in OPERATOR_KINDS.items() if engine == plan.engine)

    async def create_shared(
        self, plan: Plan, pack: Callable[[Plan], PackedProject]
    ) -> tuple[int, PackedProject | None]:
        """Make what all pods share; return the number of the project's parts, and the project if it was carried now."""
        async with self._making:
            if self._parts is not None:
                return self._parts, None
            owner = await self._ownership.find_owner()
            mark = mapping(owner["metadata"].get("annotations")).get(WHOLE) if owner else None
            code = await self._carry(plan, pack, has_owner=bool(owner)) if mark is None else None
            self._parts = len(code.contents) if code else label_number(mark)
            if self._parts is None:
                raise EngineError(f"the ConfigMap {names.base(self._plan)} was changed: {WHOLE} is no number")
            return self._parts, code

    async def _carry(self, plan: Plan, pack: Callable[[Plan], PackedProject], *, has_owner: bool) -> PackedProject:
        """Make what the run shares, and mark it as whole; return what was carried."""

        def make() -> tuple[PackedProject, Objects]:
            code = pack(plan)
            return code, shared_objects(plan, code.contents, _secrets(plan))

        code, (owner, *others) = await asyncio.to_thread(make)
        if not has_owner:
            await self._ownership.create_owner(owner)
        # What a supervisor carried that did not come to the end of this is not known.
        carried = {name_of(each) for each in others if each["kind"] == "ConfigMap"}
        for each in await self._ownership.list("ConfigMap"):
            if name_of(each) in carried:
                await self._api.delete("ConfigMap", name_of(each), uid=each["metadata"]["uid"])
        await self._create_all(others)
        mark = {"metadata": {"annotations": {WHOLE: str(len(code.contents))}}}
        await self._api.patch("ConfigMap", names.base(self._plan), mark)
        return code

    async def create(self, objects: Sequence[Object], is_wanted: Callable[[Object], bool]) -> None:
        """Create those of an attempt's objects that are still wanted, when their turn comes; the first ones first."""
        jobs = [each for each in objects if each["kind"] in _CONTROLLER_KINDS]
        await self._create_all(each for each in objects if each["kind"] not in _CONTROLLER_KINDS)

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

    async def mark_ended_replica(self, *, has_ended_replica: bool) -> None:
        """Say on the owner, which pods have among their parts, whether somebody of the line has ended already."""
        mark = {"data": {NAMES_NOT_AWAITED: "somebody has ended" if has_ended_replica else None}}
        await self._api.patch("ConfigMap", names.base(self._plan), mark)

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
                    elif kind == "Pod" and is_unreachable(each) and is_terminating(each):  # its node never says so
                        await self._api.delete(kind, name_of(each), grace_seconds=0, uid=metadata["uid"])
                return len(found) - place * _MANY
        return 0


def _secrets(plan: Plan) -> dict[str, str]:
    wanted = names.secrets(plan)
    if missing := sorted(name for name in wanted if name not in os.environ):
        raise EngineError(f"the secrets {listed(missing)} are not set where this supervisor runs")
    return {name: os.environ[name] for name in wanted}


def _now() -> float:
    return asyncio.get_running_loop().time()
