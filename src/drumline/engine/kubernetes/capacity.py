"""Compute whether all replicas fit on the nodes of a cluster: their capacity minus the requests of other pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from drumline.engine.kubernetes.answer_fields import mapping, mappings
from drumline.plan.types import ReplicaId, Resources
from drumline.record import Record
from drumline.spec.quantity import parse_quantity
from drumline.words import size

GPU = "nvidia.com/gpu"
_OVER = ("Succeeded", "Failed")
_KEEPS_OUT = ("NoSchedule", "NoExecute")


class Amount(Record):
    """An amount of each resource."""

    cpus: float = 0.0
    memory_bytes: float = 0.0
    gpus: float = 0.0

    def minus(self, other: Amount) -> Amount:
        """Return the difference."""
        return Amount(self.cpus - other.cpus, self.memory_bytes - other.memory_bytes, self.gpus - other.gpus)

    def plus(self, other: Amount) -> Amount:
        """Return the sum."""
        return Amount(self.cpus + other.cpus, self.memory_bytes + other.memory_bytes, self.gpus + other.gpus)

    def fits(self, other: Amount) -> bool:
        """Return whether the other amount fits into this one."""
        pairs = zip(_weight(self), _weight(other), strict=True)
        return all(mine >= theirs - 1e-9 for mine, theirs in pairs if theirs > 0)

    def __str__(self) -> str:
        gpus = f", {self.gpus:g} GPUs" if self.gpus else ""
        return f"{max(0.0, self.cpus):.3g} cpus, {size(max(0, int(self.memory_bytes)))}{gpus}"


class Node(Record):
    """A node that accepts the replicas' pods, with its total and free resources."""

    name: str
    total: Amount
    free: Amount


def requested(resources: Resources) -> Amount:
    """Return the resources that a replica requests."""
    return Amount(resources.cpus or 0.0, float(resources.memory_bytes or 0), float(resources.gpus or 0))


def eligible_nodes(
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    *,
    selector: Mapping[str, str],
    tolerations: Sequence[Mapping[str, Any]],
) -> list[Node]:
    """Return the nodes that accept such pods: ready, with matching labels, without a taint that is not tolerated."""
    taken: dict[str, Amount] = {}
    for pod in pods:
        spec = mapping(pod.get("spec"))
        if (name := spec.get("nodeName")) and mapping(pod.get("status")).get("phase") not in _OVER:
            taken[name] = taken.get(name, Amount()).plus(_requests(spec))
    found = []
    for node in nodes:
        name = node["metadata"]["name"]
        spec, labels = mapping(node.get("spec")), mapping(node["metadata"].get("labels"))
        if spec.get("unschedulable") or not _is_ready(node):
            continue
        if any(labels.get(key) != value for key, value in selector.items()):
            continue
        taints = [taint for taint in mappings(spec.get("taints")) if taint.get("effect") in _KEEPS_OUT]
        if not all(any(_tolerates(each, taint) for each in tolerations) for taint in taints):
            continue
        total = _amount(mapping(mapping(node.get("status")).get("allocatable")))
        found.append(Node(name, total, total.minus(taken.get(name, Amount()))))
    return found


def find_unplaced(wanted: Mapping[ReplicaId, Amount], nodes: Mapping[str, Amount]) -> list[ReplicaId]:
    """Return the replicas that do not fit on nodes with these resources, after a simulated placement.

    Replicas with the largest requests are placed first, each on the node with the least free resources that suffice.
    """
    left = dict(nodes)
    unplaced = []
    for replica in sorted(wanted, key=lambda each: _weight(wanted[each]), reverse=True):
        amount = wanted[replica]
        fits = [name for name, free in left.items() if free.fits(amount)]
        if not fits:
            unplaced.append(replica)
            continue
        best = min(fits, key=lambda name: _weight(left[name]))
        left[best] = left[best].minus(amount)
    return sorted(unplaced)


def _weight(amount: Amount) -> tuple[float, ...]:
    return amount.gpus, amount.memory_bytes, amount.cpus


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = mappings(mapping(node.get("status")).get("conditions"))
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")


def _requests(spec: Mapping[str, Any]) -> Amount:
    """Return the requests of a pod: the sum of its containers, or the largest init container if that is more."""

    def of(container: Mapping[str, Any]) -> Amount:
        return _amount(mapping(mapping(container.get("resources")).get("requests")))

    total = Amount()
    for container in mappings(spec.get("containers")):
        total = total.plus(of(container))
    before = [of(container) for container in mappings(spec.get("initContainers"))]
    every = (total, *before)
    return Amount(
        max(each.cpus for each in every), max(each.memory_bytes for each in every), max(each.gpus for each in every)
    )


def _amount(quantities: Mapping[str, Any]) -> Amount:
    return Amount(*((parse_quantity(quantities.get(name)) or 0.0) for name in ("cpu", "memory", GPU)))
