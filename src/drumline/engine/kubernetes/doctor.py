"""What a cluster has for a line, and what whoever asks may do there."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import NamedTuple

from drumline.engine.health import FINE, MISSING, UNSURE, Health, Patient
from drumline.engine.kubernetes import room
from drumline.engine.kubernetes.api import Api, open_api
from drumline.engine.kubernetes.image.builder import INSTALL, find_builder, why_none
from drumline.engine.kubernetes.paths import Objects, name_of
from drumline.engine.kubernetes.refusal import RefusedError
from drumline.errors import EngineError
from drumline.plan.cluster import Cluster, Volume
from drumline.plan.types import Plan
from drumline.words import count, listed

OLDEST = (1, 29)  # the first whose Jobs do as they are told about pods that were deleted, without being asked to
_OPERATORS = {
    "jobset": ("/apis/jobset.x-k8s.io/v1alpha2", "JobSet", "https://jobset.sigs.k8s.io/docs/installation/"),
    "tfjob": ("/apis/kubeflow.org/v1", "TFJob", "https://www.kubeflow.org/docs/components/trainer/legacy-v1/installation/"),
}
# Who enforces NetworkPolicies, by the name of what runs on every node.
_ENFORCERS = re.compile(r"calico|cilium|antrea|weave|kube-router|canal|ovn|azure-npm|netd|aws-node|kindnet|kube-network-policies")


class Right(NamedTuple):
    """Something that one may do to a kind of objects."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


def rights(engine: str, plan: Plan | None) -> Iterator[Right]:
    """Everything that a run does in a cluster."""
    for verb in ("create", "get", "patch", "delete", "list"):
        yield Right(verb, "configmaps")
    for verb in ("create", "delete", "list"):
        yield Right(verb, "services")
    for verb in ("get", "list", "watch", "delete"):
        yield Right(verb, "pods")
    yield Right("get", "pods/log")
    yield Right("list", "events")
    own = {"jobset": ("jobsets", "jobset.x-k8s.io"), "tfjob": ("tfjobs", "kubeflow.org")}.get(engine, ("jobs", "batch"))
    for verb in ("create", "get", "list", "watch", "delete"):
        yield Right(verb, *own)
    cluster = plan.cluster if plan else None
    if cluster is None or cluster.network_policy:
        yield Right("create", "networkpolicies", "networking.k8s.io")
        yield Right("delete", "networkpolicies", "networking.k8s.io")
    if cluster is None or cluster.output:
        yield Right("create", "persistentvolumeclaims")
        yield Right("get", "persistentvolumeclaims")
    if plan is None or any(not isinstance(value, str) for each in plan.replicas for value in each.env.values()):
        yield Right("create", "secrets")
        yield Right("delete", "secrets")


def examine(patient: Patient) -> list[Health]:
    """Ask the cluster; what cannot be found out without a right that nobody needs is only noted."""
    return asyncio.run(_examine(patient))


async def _examine(patient: Patient) -> list[Health]:
    found = []
    try:
        async for health in _findings(patient):
            found.append(health)
    except EngineError as error:
        found.append(Health("cluster", MISSING, error.message, error.hint))
    return found


async def _findings(patient: Patient) -> AsyncIterator[Health]:
    cluster = patient.plan.cluster if patient.plan else None
    context = patient.context or (cluster.context if cluster else None)
    namespace = patient.namespace or (cluster.namespace if cluster else None)
    async with open_api(context, namespace) as api:
        version = await api.raw_get("/version")
        yield Health("cluster", FINE, f"context {api.where.context}, {api.where.server}")
        yield judge_version(str(version.get("gitVersion", "")))
        looks = (
            _namespace(api),
            _permissions(api, patient),
            _operator(api, patient.engine),
            _storage(api, cluster.output if cluster else None),
            _room(api, patient.plan, cluster),
            _metrics(api),
            _policies(api, needed=cluster is None or cluster.network_policy),
        )
        for health in await asyncio.gather(*looks):
            yield health
    yield judge_builder(needed=bool(cluster and cluster.image.is_built))


def judge_version(text: str) -> Health:
    """Whether a server is new enough."""
    oldest = ".".join(map(str, OLDEST))
    found = re.match(r"v?(\d+)\.(\d+)", text)
    if found is None:
        return Health("version", UNSURE, f"`{text}` says nothing", f"drumline wants Kubernetes {oldest} or later")
    if (int(found[1]), int(found[2])) < OLDEST:
        return Health("version", MISSING, f"{text}, and {oldest} is the oldest that is supported", "upgrade the cluster")
    return Health("version", FINE, f"{text} ({oldest} is the oldest that is supported)")


def judge_builder(*, needed: bool) -> Health:
    """Whether images can be built on this machine."""
    builder = find_builder(os.environ)
    if builder:
        return Health("image builder", FINE, f"{builder.kind}, {builder.path}")
    return Health("image builder", MISSING if needed else UNSURE, why_none(os.environ), INSTALL)


async def _namespace(api: Api) -> Health:
    try:
        found = await api.read("Namespace", api.namespace)
    except RefusedError as error:
        if error.status != 404:
            return Health("namespace", UNSURE, f"{api.namespace}; whether it is there, you may not ask")
        hint = f"`{api.where.kubectl} create namespace {api.namespace}`"
        return Health("namespace", MISSING, f"there is no namespace `{api.namespace}`", hint)
    phase = (found.get("status") or {}).get("phase")
    if phase == "Terminating":
        return Health("namespace", MISSING, f"{api.namespace} is being deleted", "name another with `-n NAME`")
    return Health("namespace", FINE, api.namespace)


async def _permissions(api: Api, patient: Patient) -> Health:
    wanted = list(rights(patient.engine, patient.plan))
    allowed = await asyncio.gather(*(_may(api, right) for right in wanted))
    refused = [right for right, may in zip(wanted, allowed, strict=True) if not may]
    if not refused:
        return Health("permissions", FINE, f"all {len(wanted)} that a run needs")
    kubectl = f"{api.where.kubectl} create role drumline -n {api.namespace}"
    verbs = ",".join(dict.fromkeys(right.verb for right in refused))
    resources = ",".join(dict.fromkeys(f"{right.resource}.{right.group}".rstrip(".") for right in refused))
    hint = f"who administers the cluster can: `{kubectl} --verb={verbs} --resource={resources}`, and bind it to you"
    return Health("permissions", MISSING, f"you may not {listed([str(each) for each in refused])}", hint)


async def _may(api: Api, right: Right) -> bool:
    resource, _, inner = right.resource.partition("/")
    attributes = {"namespace": api.namespace, "verb": right.verb, "group": right.group, "resource": resource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": {**attributes, "subresource": inner} if inner else attributes},
    }
    answer = await api.create(review)
    return bool((answer.get("status") or {}).get("allowed"))


async def _operator(api: Api, engine: str) -> Health:
    if engine not in _OPERATORS:
        return Health("operator", FINE, "none is needed")
    path, kind, install = _OPERATORS[engine]
    if not await _is_served(api, path, kind):
        return Health("operator", MISSING, f"the cluster knows no {kind}", f"install it: {install}; or `--on kubernetes`")
    return Health("operator", FINE, f"the cluster knows {kind} ({path.removeprefix('/apis/')})")


async def _is_served(api: Api, path: str, kind: str) -> bool:
    try:
        found = await api.raw_get(path)
    except RefusedError as error:
        if error.status in (403, 404):
            return False
        raise
    return any(each.get("kind") == kind for each in found.get("resources") or ())


async def _storage(api: Api, volume: Volume | None) -> Health:
    if volume and volume.claim:
        return await _claim(api, volume.claim)
    try:
        classes = await api.list("StorageClass")
    except RefusedError:
        return Health("storage", UNSURE, "which storage classes there are, you may not ask")
    return judge_storage(classes, volume)


async def _claim(api: Api, name: str) -> Health:
    try:
        claim = await api.read("PersistentVolumeClaim", name)
    except RefusedError as error:
        if error.status == 404:
            return Health("storage", MISSING, f"there is no claim `{name}` in {api.namespace}", "`output: {size: 10GiB}` makes one")
        return Health("storage", UNSURE, error.message, error.hint)
    modes = ", ".join((claim.get("spec") or {}).get("accessModes") or ())
    phase = (claim.get("status") or {}).get("phase")
    return Health("storage", MISSING if phase == "Lost" else FINE, f"claim {name}: {phase}, {modes}")


def judge_storage(classes: Objects, volume: Volume | None) -> Health:
    """Whether a claim would be met; access modes are the provisioner's own affair, which no API tells."""
    marks = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
    usual = next(
        (each for each in classes for mark in marks if (each["metadata"].get("annotations") or {}).get(mark) == "true"), None
    )
    wanted = volume.storage_class if volume else None
    names = ", ".join(sorted(name_of(each) for each in classes)) or "none"
    chosen = next((each for each in classes if name_of(each) == wanted), None) if wanted else usual
    if chosen is None and wanted:
        return Health("storage", MISSING, f"there is no storage class `{wanted}`", f"there are: {names}")
    if chosen is None:
        words = f"no storage class is the default; there are: {names}"
        return Health("storage", MISSING if volume else UNSURE, words, "say `output: {size: 10GiB, class: NAME}`")
    provisioner, access = chosen.get("provisioner"), (volume.access if volume else None) or "ReadWriteOnce"
    words = f"class {name_of(chosen)}{'' if wanted else ', the default'} ({provisioner})"
    if access == "ReadWriteMany":
        hint = f"whether {provisioner} can do ReadWriteMany shows when the first claim is made; its manual says"
        return Health("storage", UNSURE, f"{words}, asked for {access}", hint)
    if volume and chosen.get("volumeBindingMode") == "WaitForFirstConsumer":
        return Health("storage", FINE, f"{words}, {access}, bound where the chief runs")
    return Health("storage", FINE, f"{words}, {access}" if volume else words)


async def _room(api: Api, plan: Plan | None, cluster: Cluster | None) -> Health:
    try:
        nodes = await api.list("Node")
    except RefusedError:
        return Health("room", UNSURE, "what the nodes have, you may not ask")
    try:
        answer = await api.raw_get("/api/v1/pods", limit="5000")
        pods: Objects | None = list(answer.get("items") or ())
    except RefusedError:
        pods = None
    tolerations = [each._asdict() for each in cluster.tolerations] if cluster else []
    found = room.open_nodes(
        nodes, pods or (), selector=cluster.node_selector if cluster else {}, tolerations=tolerations
    )
    return judge_room(found, plan, seen=pods is not None)


def judge_room(nodes: Sequence[room.Node], plan: Plan | None, *, seen: bool = True) -> Health:
    """Whether the whole line finds a place, now or ever; `seen`: what others have taken is known."""
    if not nodes:
        return Health("room", MISSING, "no node takes such pods", "look at `node_selector` and `tolerations`")
    most = max(nodes, key=lambda node: (node.free.gpus, node.free.cpus))
    free = f"{count(len(nodes), 'node')}; most is free on {most.name}: {most.free}"
    unseen = "" if seen else " (what others have taken, you may not ask)"
    if plan is None:
        return Health("room", FINE, f"{free}{unseen}")
    wanted = {each.id: room.asked(each.resources) for each in plan.replicas}
    if homeless := room.place(wanted, {node.name: node.whole for node in nodes}):
        first = homeless[0]
        words = f"even empty, {count(len(nodes), 'node')} cannot hold {_names(homeless)}, who wants {wanted[first]}"
        return Health("room", MISSING, words, "ask for less, or for other nodes with `node_selector`")
    if homeless := room.place(wanted, {node.name: node.free for node in nodes}):
        words = f"not now: no place is left for {_names(homeless)}, who wants {wanted[homeless[0]]}; {free}"
        return Health("room", UNSURE, words, "others have to end first; the run waits for `timeouts.start`")
    return Health("room", FINE, f"{count(len(wanted), 'replica')} on {free}{unseen}")


def _names(replicas: Sequence[object]) -> str:
    more = f" and {len(replicas) - 1} more" if len(replicas) > 1 else ""
    return f"{replicas[0]}{more}"


async def _metrics(api: Api) -> Health:
    if await _is_served(api, "/apis/metrics.k8s.io/v1beta1", "PodMetrics"):
        return Health("metrics", FINE, "the metrics API answers")
    hint = "metrics-server provides it: https://github.com/kubernetes-sigs/metrics-server"
    return Health("metrics", UNSURE, "there is no metrics API; `drumline monitor` may know less", hint)


async def _policies(api: Api, *, needed: bool) -> Health:
    try:
        answer = await api.raw_get("/apis/apps/v1/daemonsets", limit="1000")
    except RefusedError:
        return Health("network policies", UNSURE, "whether they are enforced, you may not find out")
    return judge_policies(map(name_of, answer.get("items") or ()), needed=needed)


def judge_policies(daemons: Iterable[str], *, needed: bool) -> Health:
    """Whether what runs on every node is known to enforce NetworkPolicies; a guess, and it says so."""
    known = sorted(name for name in daemons if _ENFORCERS.search(name))
    if known:
        return Health("network policies", FINE, f"probably enforced, by {', '.join(known)}")
    words = "probably not enforced: nothing that does so runs on the nodes"
    hint = "then whoever has a pod in the cluster reaches the training ports, which have no password" if needed else ""
    return Health("network policies", UNSURE, words, hint)
