"""Compare what a run needs with what the API of a cluster reports. Pure."""

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

OLDEST = (1, 29)  # the first in which `podReplacementPolicy` is on by default
# DaemonSets that enforce NetworkPolicies.
_ENFORCERS = re.compile(
    r"calico|cilium|antrea|weave|kube-router|canal|ovn|azure-npm|netd|aws-node|kindnet|kube-network-policies"
)
_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def check_version(text: str) -> DoctorCheck:
    """Check that a server is new enough."""
    oldest = ".".join(map(str, OLDEST))
    found = re.match(r"v?([0-9]{1,4})\.([0-9]{1,4})", text)
    if found is None:
        return DoctorCheck("version", NOTE, f"unknown version `{text}`", f"drumline needs Kubernetes {oldest} or later")
    if (int(found[1]), int(found[2])) < OLDEST:
        return DoctorCheck(
            "version", MISSING, f"{text}; the oldest supported version is {oldest}", "upgrade the cluster"
        )
    return DoctorCheck("version", OK, f"{text} (the oldest supported version is {oldest})")


def check_builder(environ: Mapping[str, str], *, needed: bool) -> DoctorCheck:
    """Check that images can be built on this machine."""
    builder = find_builder(environ)
    if builder:
        return DoctorCheck("image builder", OK, f"{builder.kind}, {builder.path}")
    return DoctorCheck("image builder", MISSING if needed else NOTE, explain_no_builder(environ), INSTALL)


def check_storage(classes: Objects, volume: Volume | None) -> DoctorCheck:
    """Check that a claim can be bound; no API reports which access modes a provisioner supports."""
    usual = next((each for each in classes if _is_default(each)), None)
    wanted = volume.storage_class if volume else None
    names = ", ".join(sorted(name_of(each) for each in classes)) or "none"
    chosen = next((each for each in classes if name_of(each) == wanted), None) if wanted else usual
    if chosen is None and wanted:
        return DoctorCheck("storage", MISSING, f"there is no storage class `{wanted}`", f"there are: {names}")
    if chosen is None:
        words = f"no storage class is the default; there are: {names}"
        return DoctorCheck("storage", MISSING if volume else NOTE, words, "set `output: {size: 10GiB, class: NAME}`")
    provisioner, access = chosen.get("provisioner"), (volume.access if volume else None) or "ReadWriteOnce"
    words = f"class {name_of(chosen)}{'' if wanted else ', the default'} ({provisioner})"
    if access == "ReadWriteMany":
        hint = f"see the manual of {provisioner}: whether it supports ReadWriteMany cannot be read from the cluster"
        return DoctorCheck("storage", NOTE, f"{words}, {access}", hint)
    if volume and chosen.get("volumeBindingMode") == "WaitForFirstConsumer":
        return DoctorCheck("storage", OK, f"{words}, {access}, bound where the chief runs")
    return DoctorCheck("storage", OK, f"{words}, {access}" if volume else words)


def _is_default(storage_class: Mapping[str, Any]) -> bool:
    marks = storage_class["metadata"].get("annotations") or {}
    return any(marks.get(each) == "true" for each in _DEFAULT)


def check_capacity(nodes: Sequence[capacity.Node], plan: Plan | None, *, seen: bool = True) -> DoctorCheck:
    """Check that all replicas fit on the nodes, if the nodes were empty, and with their current pods.

    `seen` is whether the pods of others are known.
    """
    if not nodes:
        return DoctorCheck("room", MISSING, "no node accepts these pods", "check `node_selector` and `tolerations`")
    most = max(nodes, key=lambda node: (node.free.gpus, node.free.cpus))
    free = f"{count(len(nodes), 'node')}; most is free on {most.name}: {most.free}"
    unseen = "" if seen else " (without the pods of others, which you may not list)"
    if plan is None:
        return DoctorCheck("room", OK, f"{free}{unseen}")
    wanted = {each.id: capacity.requested(each.resources) for each in plan.replicas}
    if unplaced := capacity.find_unplaced(wanted, {node.name: node.total for node in nodes}):
        first = unplaced[0]
        words = f"{_names(unplaced)} cannot run on {count(len(nodes), 'empty node')}: {first} needs {wanted[first]}"
        return DoctorCheck("room", MISSING, words, "ask for less, or for other nodes with `node_selector`")
    if unplaced := capacity.find_unplaced(wanted, {node.name: node.free for node in nodes}):
        words = f"{_names(unplaced)} cannot run now: {unplaced[0]} needs {wanted[unplaced[0]]}; {free}"
        return DoctorCheck("room", NOTE, words, "other pods have to end first; the run waits up to `timeouts.start`")
    return DoctorCheck("room", OK, f"{count(len(wanted), 'replica')} on {free}{unseen}")


def _names(replicas: Sequence[object]) -> str:
    more = f" and {len(replicas) - 1} more" if len(replicas) > 1 else ""
    return f"{replicas[0]}{more}"


def check_policies(daemons: Iterable[str], *, needed: bool) -> DoctorCheck:
    """Guess from the DaemonSets whether NetworkPolicies are enforced."""
    known = sorted(name for name in daemons if _ENFORCERS.search(name))
    if known:
        return DoctorCheck("network policies", OK, f"probably enforced, by {', '.join(known)}")
    words = "probably not enforced: no network plugin that does so was found"
    hint = "then every pod in the cluster can reach the training ports, which have no password" if needed else ""
    return DoctorCheck("network policies", NOTE, words, hint)
