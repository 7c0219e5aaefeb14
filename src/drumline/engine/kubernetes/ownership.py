"""Decide which objects of the cluster belong to the run.

An object belongs to the run if it has the run's mark. A pod belongs to the run if an object of the run controls it, if
it has a name that this object would give it, and if it is the first pod of its incarnation. Other objects with the
run's labels are ignored: they are not shown, awaited, changed or deleted.
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
_MOST_OTHERS = 10_000  # pods of others that are remembered, so that they are not checked again


class NameTakenError(EngineError):
    """An object that the run has not created has a name that the run needs."""


class Ownership:
    """Distinguishes the objects of one run from those of others."""

    def __init__(self, api: Api, plan: Plan, folder: Path) -> None:
        self._api = api
        self._plan = plan
        self._record = OwnershipRecord(folder)
        self._controllers = PodControllers(plan)
        self._kind = OPERATOR_KINDS.get(plan.engine, "Job")
        self._incarnations: dict[str, Incarnation] = {}  # by the uid of the pod
        self._others: set[str] = set()

    def known_incarnation(self, pod: Mapping[str, Any]) -> Incarnation | None:
        """Return the incarnation of a pod that was recognized before."""
        return self._incarnations.get(pod["metadata"]["uid"])

    async def find_owner(self) -> Object | None:
        """Return the owner, None if it does not exist; raise NameTakenError if another object has its name."""
        found = await self._api.find("ConfigMap", names.base(self._plan))
        if found is None:
            return None
        self._record.reload()  # the key is recorded before the owner is created
        if self._record.is_new:  # a version of drumline without this record has created it
            self._record.add_owner(found["metadata"]["uid"])
        return self._require_owner(found)

    async def create_owner(self, owner: Object) -> Object:
        """Create the owner with a new key: marks of an earlier owner may have been copied by others."""
        known = self._record.owner_uid
        self._record.reload()
        if self._record.owner_uid != known and (found := await self.find_owner()):
            return found
        self._record.renew()
        return self._require_owner(await self._api.create(self._record.mark(owner)))

    def mark(self, an_object: Object) -> Object:
        """Return an object with its mark and a reference to the owner; claims have no owner."""
        return manifests.with_owner(self._record.mark(an_object), self._plan, self._record.owner_uid)

    async def create(self, an_object: Object) -> Object:
        """Create an object of the run; raise NameTakenError if another object has its name."""
        found = {**await self._api.create(self.mark(an_object)), "kind": an_object["kind"]}
        if an_object["kind"] == "PersistentVolumeClaim":
            # It outlives the owner and its key; its name has the run's random letters.
            is_own = mapping(found["metadata"].get("labels")).get(names.RUN) == names.base(self._plan)
        else:
            is_own = self.is_own(found)
        if not is_own:
            raise self._name_taken(an_object)
        return found

    def is_own(self, an_object: Mapping[str, Any]) -> bool:
        """Return whether the run has created an object; the object must have a `kind`."""
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
        """Return the objects of a kind that the run has created, or that an object of the run controls."""
        await self._load_owner()
        found: Objects = []
        chosen = names.selector(self._plan) if selector is None else selector
        for each in await self._api.list(kind, chosen, fields=fields):
            each.setdefault("kind", kind)  # items of a list do not have it
            if kind == "Pod":
                await self.recognize(each)
            if self.is_own(each) or self._is_controlled(each):
                found.append(each)
        return found

    async def delete(self, kind: str, object_name: str, *, policy: str = "Background") -> bool:
        """Delete an object of the run by its name; return whether it existed."""
        for each in await self.list(kind, "", fields=f"metadata.name={object_name}"):
            if name_of(each) == object_name:
                return await self._api.delete(kind, object_name, uid=each["metadata"]["uid"], policy=policy)
        return False

    async def delete_owner(self) -> None:
        """Delete the owner, if it exists."""
        with suppress(NameTakenError):
            if owner := await self.find_owner():
                await self._api.delete("ConfigMap", name_of(owner), uid=owner["metadata"]["uid"])

    async def recognize(self, pod: Mapping[str, Any]) -> Incarnation | None:
        """Return the incarnation of a pod; None if the pod is not the run's. Later calls return the same."""
        metadata = mapping(pod.get("metadata"))
        uid, object_name = name(metadata.get("uid")), name(metadata.get("name"))
        if not uid or not object_name or uid in self._others:
            return None
        if uid not in self._incarnations:
            incarnation = await self._identify(pod, object_name)
            if incarnation is None:
                if len(self._others) >= _MOST_OTHERS:
                    self._others.clear()
                self._others.add(uid)
                return None
            self._incarnations[uid] = incarnation
        return self._incarnations[uid]

    async def _identify(self, pod: Mapping[str, Any], object_name: str) -> Incarnation | None:
        incarnation = names.incarnation_of(self._plan, pod["metadata"])
        if (
            incarnation is None
            or not self._controllers.is_planned(incarnation)
            or not self._controllers.may_be_named(incarnation, object_name)
        ):
            return None
        kind, controller = self._controllers.controller(incarnation)
        reference = _controller(pod)
        if (reference.get("kind"), reference.get("name")) != (kind, controller):
            return None
        uid = reference.get("uid")
        if uid not in self._record.controllers:
            await self._find_controllers(kind)
        if self._record.controllers.get(str(uid)) != (kind, controller):
            return None
        return incarnation if self._is_first(incarnation, pod["metadata"]["uid"]) else None

    def _is_first(self, incarnation: Incarnation, uid: str) -> bool:
        """Return whether a pod is the first of its incarnation; a Job adopts any other pod with its labels."""
        object_name = trace_dir(incarnation.replica, incarnation.attempt, incarnation.incarnation)
        if object_name not in self._record.pods:
            self._record.add_pod(object_name, uid)
        return self._record.pods[object_name] == uid

    async def _find_controllers(self, kind: str) -> None:
        """Find the controllers of pods, and record them."""
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
            raise self._name_taken({**found, "kind": "ConfigMap"})
        self._record.add_owner(uid)
        return found

    def _name_taken(self, an_object: Object) -> NameTakenError:
        kind, object_name, where = an_object["kind"], name_of(an_object), self._api.where
        kubectl = f"{where.kubectl} -n {where.namespace}"
        return NameTakenError(
            f"the namespace `{where.namespace}` has a {kind} {object_name} that this run has not created",
            hint=f"`{kubectl} describe {kind.lower()} {object_name}` shows it; delete it, since the run needs its name",
        )


def attempt_of(an_object: Mapping[str, Any]) -> int:
    """Return the attempt for which an object was created."""
    return label_number(mapping(mapping(an_object.get("metadata")).get("labels")).get(names.ATTEMPT)) or 0


def _controller(an_object: Mapping[str, Any]) -> Mapping[str, Any]:
    references = mappings(mapping(an_object.get("metadata")).get("ownerReferences"))
    return next((each for each in references if each.get("controller") is True), {})
