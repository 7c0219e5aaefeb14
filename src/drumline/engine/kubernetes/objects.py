"""Create and delete a run's objects in the cluster; idempotent.

Objects are found by their names. The objects that all attempts of a run share are created once. When they are complete
the owner gets a mark, so that a later supervisor does not need the project's files.
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

WHOLE = f"{names.PREFIX}/parts"  # on the owner: the shared objects are complete; the number of the project's ConfigMaps
_CONTROLLER_KINDS = ("Job", *OPERATOR_KINDS.values())
_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0
_STUCK_SECONDS = 60.0  # without progress: a node may be gone, or a finalizer may hold an object
_MANY = 1 << 20


def kinds_of(plan: Plan) -> tuple[str, ...]:
    """Return the kinds of a run's objects, the operator's first; other kinds may not be listed."""
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
    """Creates and deletes the objects of one run."""

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
        """Create the shared objects; return the number of the project's ConfigMaps, and the project if packed now."""
        async with self._making:
            if self._parts is not None:
                return self._parts, None
            owner = await self._ownership.find_owner()
            mark = mapping(owner["metadata"].get("annotations")).get(WHOLE) if owner else None
            code = await self._carry(plan, pack, has_owner=bool(owner)) if mark is None else None
            self._parts = len(code.contents) if code else label_number(mark)
            if self._parts is None:
                raise EngineError(f"the ConfigMap {names.base(self._plan)} was changed: {WHOLE} is not a number")
            return self._parts, code

    async def _carry(self, plan: Plan, pack: Callable[[Plan], PackedProject], *, has_owner: bool) -> PackedProject:
        """Create the shared objects and mark them as complete; return the project."""

        def make() -> tuple[PackedProject, Objects]:
            code = pack(plan)
            return code, shared_objects(plan, code.contents, _secrets(plan))

        code, (owner, *others) = await asyncio.to_thread(make)
        if not has_owner:
            await self._ownership.create_owner(owner)
        # ConfigMaps of a supervisor that did not finish this may have different content.
        carried = {name_of(each) for each in others if each["kind"] == "ConfigMap"}
        for each in await self._ownership.list("ConfigMap"):
            if name_of(each) in carried:
                await self._api.delete("ConfigMap", name_of(each), uid=each["metadata"]["uid"])
        await self._create_all(others)
        mark = {"metadata": {"annotations": {WHOLE: str(len(code.contents))}}}
        await self._api.patch("ConfigMap", names.base(self._plan), mark)
        return code

    async def create(self, objects: Sequence[Object], is_wanted: Callable[[Object], bool]) -> None:
        """Create an attempt's objects, first those that Jobs need, then the Jobs that are still wanted."""
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
        """Create objects concurrently; raise the first error."""
        await asyncio.gather(*map(self._ownership.create, objects))

    async def mark_ended_replica(self, *, has_ended_replica: bool) -> None:
        """Record on the owner, which pods mount, whether a replica of the attempt has ended."""
        mark = {"data": {NAMES_NOT_AWAITED: "a replica has ended" if has_ended_replica else None}}
        await self._api.patch("ConfigMap", names.base(self._plan), mark)

    async def remove(self) -> bool:
        """Delete the run's objects except claims; return False if some are left and none ends for a minute."""
        for kind in self._operated:  # with the objects that the operator made
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
        """Return a number that changes when fewer objects are left; 0 if none is."""
        for place, kind in enumerate(kinds_of(self._plan)):
            if found := await self._ownership.list(kind):
                for each in found:
                    metadata = each["metadata"]
                    if not metadata.get("ownerReferences"):  # nothing else deletes it
                        await self._api.delete(kind, name_of(each), uid=metadata["uid"])
                    elif (
                        kind == "Pod" and is_unreachable(each) and is_terminating(each)
                    ):  # its node does not confirm the deletion
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
