"""Check a cluster and the user's permissions in it for `drumline doctor`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from drumline.engine.doctor_checks import MISSING, NOTE, OK, DoctorCheck, DoctorTarget
from drumline.engine.kubernetes import capacity, diagnosis
from drumline.engine.kubernetes.answer_fields import mapping, mappings, text
from drumline.engine.kubernetes.api import Api, open_api
from drumline.engine.kubernetes.api_errors import RefusedError
from drumline.engine.kubernetes.controllers import OPERATOR_KINDS
from drumline.engine.kubernetes.paths import VERSIONS, Object, Objects, name_of
from drumline.engine.kubernetes.permissions import Permission, find_denied, permissions_of
from drumline.engine.kubernetes.plan_options import Cluster, Volume
from drumline.errors import EngineError
from drumline.plan.codec import read_options
from drumline.plan.types import Plan
from drumline.record import to_dict
from drumline.words import listed

_INSTALL = {
    "JobSet": "https://jobset.sigs.k8s.io",
    "TFJob": "https://www.kubeflow.org/docs/components/trainer/legacy-v1",
}


def diagnose(target: DoctorTarget) -> list[DoctorCheck]:
    """Return the checks of the cluster; one that the user may not make, and that no run needs, becomes a note."""
    return asyncio.run(_diagnose(target))


async def _diagnose(target: DoctorTarget) -> list[DoctorCheck]:
    found: list[DoctorCheck] = []
    try:
        found.extend([each async for each in _run_checks(target)])
    except EngineError as error:
        found.append(DoctorCheck("cluster", MISSING, error.message, error.hint))
    return found


async def _run_checks(target: DoctorTarget) -> AsyncIterator[DoctorCheck]:
    cluster = read_options(Cluster, target.options)
    async with open_api(cluster.context, cluster.namespace) as api:
        version = await api.raw_get("/version")
        yield DoctorCheck("cluster", OK, f"context {api.where.context}, {api.where.server}")
        yield diagnosis.check_version(str(version.get("gitVersion", "")))
        checks = (
            _namespace(api),
            _permissions(api, target),
            _operator(api, target.engine),
            _storage(api, cluster.output),
            _room(api, target.plan, cluster),
            _metrics(api),
            _policies(api, needed=cluster.network_policy),
        )
        for health in await asyncio.gather(*checks):
            yield health
    yield diagnosis.check_builder(os.environ, needed=cluster.image.is_built)


async def _namespace(api: Api) -> DoctorCheck:
    try:
        found = await api.find("Namespace", api.namespace)
    except RefusedError:
        return DoctorCheck("namespace", NOTE, f"{api.namespace}; you may not read whether it exists")
    if found is None:
        hint = f"`{api.where.kubectl} create namespace {api.namespace}`"
        return DoctorCheck("namespace", MISSING, f"there is no namespace `{api.namespace}`", hint)
    phase = mapping(found.get("status")).get("phase")
    if phase == "Terminating":
        return DoctorCheck("namespace", MISSING, f"{api.namespace} is being deleted", "choose another with `-n NAME`")
    return DoctorCheck("namespace", OK, api.namespace)


async def _permissions(api: Api, target: DoctorTarget) -> DoctorCheck:
    wanted = permissions_of(target.engine, target.plan)
    refused = await find_denied(api, wanted)
    if not refused:
        return DoctorCheck("permissions", OK, f"all {len(wanted)} permissions that a run needs")
    kubectl = f"{api.where.kubectl} create role drumline -n {api.namespace}"
    verbs = ",".join(dict.fromkeys(right.verb for right in refused))
    resources = ",".join(dict.fromkeys(_spelled(right) for right in refused))
    hint = f"ask an administrator for `{kubectl} --verb={verbs} --resource={resources}`, bound to you"
    return DoctorCheck("permissions", MISSING, f"you may not {listed([str(each) for each in refused])}", hint)


def _spelled(right: Permission) -> str:
    """Return a permission's resource in the syntax of `kubectl create role`."""
    resource = f"{right.resource}.{right.group}" if right.group else right.resource
    return f"{resource}/{right.subresource}" if right.subresource else resource


async def _operator(api: Api, engine: str) -> DoctorCheck:
    if engine not in OPERATOR_KINDS:
        return DoctorCheck("operator", OK, "none is needed")
    kind = OPERATOR_KINDS[engine]
    if not await _is_served(api, kind):
        hint = f"install it ({_INSTALL[kind]}), or train with `--on kubernetes`"
        return DoctorCheck("operator", MISSING, f"the cluster has no {kind}", hint)
    return DoctorCheck("operator", OK, f"the cluster has {kind} ({VERSIONS[kind]})")


async def _is_served(api: Api, kind: str) -> bool:
    try:
        found = await api.raw_get(f"/apis/{VERSIONS[kind]}")
    except RefusedError as error:
        if error.status in (403, 404):
            return False
        raise
    return any(each.get("kind") == kind for each in mappings(found.get("resources")))


async def _storage(api: Api, volume: Volume | None) -> DoctorCheck:
    if volume and volume.claim:
        return await _claim(api, volume.claim)
    try:
        classes = await api.list("StorageClass")
    except RefusedError:
        return DoctorCheck("storage", NOTE, "you may not list storage classes")
    return diagnosis.check_storage(classes, volume)


async def _claim(api: Api, name: str) -> DoctorCheck:
    try:
        claim = await api.find("PersistentVolumeClaim", name)
    except RefusedError as error:
        return DoctorCheck("storage", NOTE, error.message, error.hint)
    if claim is None:
        words = f"there is no claim `{name}` in {api.namespace}"
        return DoctorCheck("storage", MISSING, words, "`output: {size: 10GiB}` makes one")
    modes = ", ".join(map(text, mapping(claim.get("spec")).get("accessModes") or ()))
    phase = text(mapping(claim.get("status")).get("phase"))
    return DoctorCheck("storage", MISSING if phase == "Lost" else OK, f"claim {name}: {phase}, {modes}")


async def _room(api: Api, plan: Plan | None, cluster: Cluster) -> DoctorCheck:
    try:
        nodes = await api.list("Node")
    except RefusedError:
        return DoctorCheck("room", NOTE, "you may not list nodes")
    try:
        pods: Objects | None = await api.list_everywhere("Pod", _keep_requests)
    except RefusedError:
        pods = None
    tolerations = [to_dict(each) for each in cluster.tolerations]
    found = capacity.eligible_nodes(nodes, pods or (), selector=cluster.node_selector, tolerations=tolerations)
    return diagnosis.check_capacity(found, plan, seen=pods is not None)


async def _metrics(api: Api) -> DoctorCheck:
    if await _is_served(api, "PodMetrics"):
        return DoctorCheck("metrics", OK, "the metrics API answers")
    hint = "metrics-server provides it: https://github.com/kubernetes-sigs/metrics-server"
    return DoctorCheck("metrics", NOTE, "there is no metrics API; `drumline monitor` may show less", hint)


async def _policies(api: Api, *, needed: bool) -> DoctorCheck:
    try:
        answer = await api.raw_get("/apis/apps/v1/daemonsets", limit="200")
    except RefusedError:
        return DoctorCheck("network policies", NOTE, "unknown whether enforced: you may not list DaemonSets")
    return diagnosis.check_policies(map(name_of, mappings(answer.get("items"))), needed=needed)


async def _keep_requests(pod: Object) -> Object | None:
    """Return the parts of a pod with the resources that it takes from its node; None if it has no node."""
    spec = mapping(pod.get("spec"))
    kept = {key: spec.get(key) for key in ("nodeName", "containers", "initContainers")}
    if not kept["nodeName"]:
        return None
    for key in ("containers", "initContainers"):
        kept[key] = [{"resources": each.get("resources")} for each in mappings(kept[key])]
    return {"spec": kept, "status": {"phase": mapping(pod.get("status")).get("phase")}}
