"""Which objects of the cluster are this run's.

An object is the run's if it carries the run's mark; a pod, if an object of the run controls it, it has a name that this
object would give it, and it is the first that is seen of its life. Whatever else has the run's labels is left alone: it
is not shown, not waited for, not changed and not deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from drumline.engine.kubernetes import manifests, names
from drumline.engine.kubernetes.answer_fields import label_number, mapping, mappings, name
from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.controllers import OPERATOR_KINDS, PodControllers
from drumline.engine.kubernetes.ownership_record import OwnershipRecord
from drumline.engine.kubernetes.paths import Object, Objects, name_of
from drumline.errors import EngineError
from drumline.plan.types import Plan
from drumline.run.incarnation import Incarnation
from drumline.run.traces import trace_dir

_CONTROLLER_KINDS = ("Job", *OPERATOR_KINDS.values())
_MOST_FOREIGN = 10_000  # foreign pods that are remembered, so that they are not looked into again


class NameTakenError(EngineError):
    """An object that the run has not made has a name that the run needs."""


class Ownership:
    """Tells the objects of one run from those of others."""

    def __init__(self, api: Api, plan: Plan, folder: Path) -> None:
        self._api = api
        self._plan = plan
        self._record = OwnershipRecord(folder)
        self._controllers = PodControllers(plan)
        self._kind = OPERATOR_KINDS.get(plan.engine, "Job")
        self._lives: dict[str, Incarnation] = {}  # by the uid of the pod
        self._foreign: set[str] = set()

    def known_incarnation(self, pod: Mapping[str, Any]) -> Incarnation | None:
        """Return the life of a pod that was recognized before."""
        return self._lives.get(pod["metadata"]["uid"])

    async def find_owner(self) -> Object | None:
        """Return the object that owns the others, if it is there; raise ForeignError if another one has its name."""
        found = await self._api.find("ConfigMap", names.base(self._plan))
        if found is None:
            return None
        self._record.reload()  # a key is written down before the owner is created
        if self._record.is_new:  # a drumline that wrote nothing down has made it
            self._record.add_owner(found["metadata"]["uid"])
        return self._require_owner(found)

    async def create_owner(self, owner: Object) -> Object:
        """Create the owner, with a key that is new: what had its mark before is gone, and may be copied by others."""
        known = self._record.owner_uid
        self._record.reload()
        if self._record.owner_uid != known and (found := await self.find_owner()):
            return found
        self._record.renew()
        return self._require_owner(await self._api.create(self._record.mark(owner)))

    def mark(self, an_object: Object) -> Object:
        """Return an object as it is to be created, owned by the owner; claims have none, and stay."""
        return manifests.with_owner(self._record.mark(an_object), self._plan, self._record.owner_uid)

    async def create(self, an_object: Object) -> Object:
        """Create an object of the run; raise ForeignError if one that is not the run's has its name."""
        found = {**await self._api.create(self.mark(an_object)), "kind": an_object["kind"]}
        if an_object["kind"] == "PersistentVolumeClaim":
            # It outlives the owner and its key. Its name has the run's random letters in it.
            is_own = mapping(found["metadata"].get("labels")).get(names.RUN) == names.base(self._plan)
        else:
            is_own = self.is_own(found)
        if not is_own:
            raise self._is_taken(an_object)
        return found

    def is_own(self, an_object: Mapping[str, Any]) -> bool:
        """Return whether the run has made an object; its kind has to be in it."""
        metadata = mapping(an_object.get("metadata"))
        uid = metadata.get("uid")
        if uid in self._record.controllers:
            return True
        if (an_object.get("kind"), metadata.get("name")) == ("ConfigMap", names.base(self._plan)):
            return uid == self._record.owner_uid
        is_own = self._record.has_mark(an_object)
        if not self._record.key and self._record.owner_uid:
            owners = [each.get("uid") for each in mappings(metadata.get("ownerReferences"))]
            is_own = self._record.owner_uid in (uid, *owners)
        if is_own and an_object.get("kind") in _CONTROLLER_KINDS:
            self._record.add_controller(str(uid), str(an_object["kind"]), name_of(an_object))
        return is_own

    async def list(self, kind: str, selector: str | None = None, *, fields: str = "") -> Objects:
        """Return the objects of a kind that the run has made, or that an object of the run controls."""
        await self._load_owner()
        found: Objects = []
        chosen = names.selector(self._plan) if selector is None else selector
        for each in await self._api.list(kind, chosen, fields=fields):
            each.setdefault("kind", kind)  # items of a list leave it out
            if kind == "Pod":
                await self.recognize(each)
            if self.is_own(each) or self._is_controlled(each):
                found.append(each)
        return found

    async def delete(self, kind: str, called: str, *, policy: str = "Background") -> bool:
        """Delete an object of the run by its name; return whether there was one."""
        for each in await self.list(kind, "", fields=f"metadata.name={called}"):
            if name_of(each) == called:
                return await self._api.delete(kind, called, uid=each["metadata"]["uid"], policy=policy)
        return False

    async def delete_owner(self) -> None:
        """Delete the owner, if it is there."""
        with suppress(NameTakenError):
            if owner := await self.find_owner():
                await self._api.delete("ConfigMap", name_of(owner), uid=owner["metadata"]["uid"])

    async def recognize(self, pod: Mapping[str, Any]) -> Incarnation | None:
        """Return the life of a pod; None if the pod is not the run's. What it was at first, it stays."""
        metadata = mapping(pod.get("metadata"))
        uid, called = name(metadata.get("uid")), name(metadata.get("name"))
        if not uid or not called or uid in self._foreign:
            return None
        if uid not in self._lives:
            life = await self._identify(pod, called)
            if life is None:
                if len(self._foreign) >= _MOST_FOREIGN:
                    self._foreign.clear()
                self._foreign.add(uid)
                return None
            self._lives[uid] = life
        return self._lives[uid]

    async def _identify(self, pod: Mapping[str, Any], called: str) -> Incarnation | None:
        life = names.incarnation_of(self._plan, pod["metadata"])
        if life is None or not self._controllers.is_planned(life) or not self._controllers.may_be_named(life, called):
            return None
        kind, controller = self._controllers.controller(life)
        reference = _controller(pod)
        if (reference.get("kind"), reference.get("name")) != (kind, controller):
            return None
        uid = reference.get("uid")
        if uid not in self._record.controllers:
            await self._find_controllers(kind)
        if self._record.controllers.get(str(uid)) != (kind, controller):
            return None
        return life if self._is_first(life, pod["metadata"]["uid"]) else None

    def _is_first(self, life: Incarnation, uid: str) -> bool:
        """Return whether a pod is the first of its life; a Job adopts any other that has its labels."""
        called = trace_dir(life.replica, life.attempt, life.incarnation)
        if called not in self._record.pods:
            self._record.add_pod(called, uid)
        return self._record.pods[called] == uid

    async def _find_controllers(self, kind: str) -> None:
        """Look for what makes pods, and write it down."""
        await self._load_owner()
        for each in await self._api.list(kind, names.selector(self._plan)):
            self.is_own({**each, "kind": kind})
        if kind == "Job" and self._kind == "JobSet":
            await self._find_controllers("JobSet")
            for each in await self._api.list("Job", f"{names.JOBSET_NAME}={names.service(self._plan)}"):
                if self._is_controlled(each):
                    self._record.add_controller(each["metadata"]["uid"], "Job", name_of(each))

    async def _load_owner(self) -> None:
        if self._record.is_new:
            await self.find_owner()

    def _is_controlled(self, an_object: Mapping[str, Any]) -> bool:
        return _controller(an_object).get("uid") in self._record.controllers

    def _require_owner(self, found: Object) -> Object:
        uid = str(found["metadata"]["uid"])
        if self._record.owner_uid:
            is_own = uid == self._record.owner_uid
        else:
            is_own = self._record.has_mark({**found, "kind": "ConfigMap"})
        if not is_own:
            raise self._is_taken({**found, "kind": "ConfigMap"})
        self._record.add_owner(uid)
        return found

    def _is_taken(self, an_object: Object) -> NameTakenError:
        kind, called, where = an_object["kind"], name_of(an_object), self._api.where
        kubectl = f"{where.kubectl} -n {where.namespace}"
        return NameTakenError(
            f"the namespace `{where.namespace}` has a {kind} {called} that this run has not made",
            hint=f"`{kubectl} describe {kind.lower()} {called}` shows it; the run needs its name",
        )


def attempt_of(an_object: Mapping[str, Any]) -> int:
    """Return the attempt for which an object of the run was made."""
    return label_number(mapping(mapping(an_object.get("metadata")).get("labels")).get(names.ATTEMPT)) or 0


def _controller(an_object: Mapping[str, Any]) -> Mapping[str, Any]:
    references = mappings(mapping(an_object.get("metadata")).get("ownerReferences"))
    return next((each for each in references if each.get("controller") is True), {})
