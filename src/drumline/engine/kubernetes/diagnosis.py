"""What is needed in a cluster and what is there, weighed: pure, from what its API said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from drumline.engine.doctor_checks import MISSING, NOTE, OK, DoctorCheck
from drumline.engine.kubernetes import capacity
from drumline.engine.kubernetes.image.builder import INSTALL, explain_no_builder, find_builder
from drumline.engine.kubernetes.paths import Objects, name_of
from drumline.engine.kubernetes.plan_options import Volume
from drumline.plan.types import Plan
from drumline.words import count

OLDEST = (1, 29)  # the first whose Jobs do as they are told about pods that were deleted, without being asked to
# Who enforces NetworkPolicies, by the name of what runs on every node.
_ENFORCERS = re.compile(
    r"calico|cilium|antrea|weave|kube-router|canal|ovn|azure-npm|netd|aws-node|kindnet|kube-network-policies"
)
_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def check_version(text: str) -> DoctorCheck:
    """Whether a server is new enough."""
    oldest = ".".join(map(str, OLDEST))
    found = re.match(r"v?([0-9]{1,4})\.([0-9]{1,4})", text)
    if found is None:
        return DoctorCheck("version", NOTE, f"`{text}` says nothing", f"drumline wants Kubernetes {oldest} or later")
    if (int(found[1]), int(found[2])) < OLDEST:
        return DoctorCheck(
            "version", MISSING, f"{text}, and {oldest} is the oldest that is supported", "upgrade the cluster"
        )
    return DoctorCheck("version", OK, f"{text} ({oldest} is the oldest that is supported)")


def check_builder(environ: Mapping[str, str], *, needed: bool) -> DoctorCheck:
    """Whether images can be built on this machine."""
    builder = find_builder(environ)
    if builder:
        return DoctorCheck("image builder", OK, f"{builder.kind}, {builder.path}")
    return DoctorCheck("image builder", MISSING if needed else NOTE, explain_no_builder(environ), INSTALL)


def check_storage(classes: Objects, volume: Volume | None) -> DoctorCheck:
    """Whether a claim would be met; access modes are the provisioner's own affair, which no API tells."""
    usual = next((each for each in classes if _is_default(each)), None)
    wanted = volume.storage_class if volume else None
    names = ", ".join(sorted(name_of(each) for each in classes)) or "none"
    chosen = next((each for each in classes if name_of(each) == wanted), None) if wanted else usual
    if chosen is None and wanted:
        return DoctorCheck("storage", MISSING, f"there is no storage class `{wanted}`", f"there are: {names}")
    if chosen is None:
        words = f"no storage class is the default; there are: {names}"
        return DoctorCheck("storage", MISSING if volume else NOTE, words, "say `output: {size: 10GiB, class: NAME}`")
    provisioner, access = chosen.get("provisioner"), (volume.access if volume else None) or "ReadWriteOnce"
    words = f"class {name_of(chosen)}{'' if wanted else ', the default'} ({provisioner})"
    if access == "ReadWriteMany":
        hint = f"whether {provisioner} can do ReadWriteMany shows when the first claim is made; its manual says"
        return DoctorCheck("storage", NOTE, f"{words}, asked for {access}", hint)
    if volume and chosen.get("volumeBindingMode") == "WaitForFirstConsumer":
        return DoctorCheck("storage", OK, f"{words}, {access}, bound where the chief runs")
    return DoctorCheck("storage", OK, f"{words}, {access}" if volume else words)


def _is_default(storage_class: Mapping[str, Any]) -> bool:
    marks = storage_class["metadata"].get("annotations") or {}
    return any(marks.get(each) == "true" for each in _DEFAULT)


def check_capacity(nodes: Sequence[capacity.Node], plan: Plan | None, *, seen: bool = True) -> DoctorCheck:
    """Whether the whole line finds a place, now or ever; `seen`: what others have taken is known."""
    if not nodes:
        return DoctorCheck("room", MISSING, "no node takes such pods", "look at `node_selector` and `tolerations`")
    most = max(nodes, key=lambda node: (node.free.gpus, node.free.cpus))
    free = f"{count(len(nodes), 'node')}; most is free on {most.name}: {most.free}"
    unseen = "" if seen else " (what others have taken, you may not ask)"
    if plan is None:
        return DoctorCheck("room", OK, f"{free}{unseen}")
    wanted = {each.id: capacity.requested(each.resources) for each in plan.replicas}
    if unplaced := capacity.find_unplaced(wanted, {node.name: node.total for node in nodes}):
        first = unplaced[0]
        words = f"even empty, {count(len(nodes), 'node')} cannot hold {_names(unplaced)}, who wants {wanted[first]}"
        return DoctorCheck("room", MISSING, words, "ask for less, or for other nodes with `node_selector`")
    if unplaced := capacity.find_unplaced(wanted, {node.name: node.free for node in nodes}):
        words = f"not now: no place is left for {_names(unplaced)}, who wants {wanted[unplaced[0]]}; {free}"
        return DoctorCheck("room", NOTE, words, "others have to end first; the run waits for `timeouts.start`")
    return DoctorCheck("room", OK, f"{count(len(wanted), 'replica')} on {free}{unseen}")


def _names(replicas: Sequence[object]) -> str:
    more = f" and {len(replicas) - 1} more" if len(replicas) > 1 else ""
    return f"{replicas[0]}{more}"


def check_policies(daemons: Iterable[str], *, needed: bool) -> DoctorCheck:
    """Whether what runs on every node is known to enforce NetworkPolicies; a guess, and it says so."""
    known = sorted(name for name in daemons if _ENFORCERS.search(name))
    if known:
        return DoctorCheck("network policies", OK, f"probably enforced, by {', '.join(known)}")
    words = "probably not enforced: nothing that does so runs on the nodes"
    hint = "then whoever has a pod in the cluster reaches the training ports, which have no password" if needed else ""
    return DoctorCheck("network policies", NOTE, words, hint)
