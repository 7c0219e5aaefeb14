"""Upgrade plans of version 1: add absent fields, and move the options of engines.

Version 1 left out fields with their default value; later versions write every field. The values in this file are the
defaults of version 1, and never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ABSENT: Mapping[str, Mapping[str, object]] = {
    "Plan": {
        "workdir": ".", "output": None, "checkpoint": None, "parameters": {}, "data": [], "environment": None,
        "preparations": [], "restart": {}, "timeouts": {}, "tf_config_always": False, "evaluator_in_cluster": False,
        "torch_rendezvous_always": False, "oversubscribe": False, "warm": None,
        "tensorboard": False,
    },
    "Replica": {"port": None, "port_fixed": False},
    "Resources": {"cpus": None, "memory_bytes": None, "gpus": None},
    "Environment": {"requirements": [], "pythons": []},
    "Restart": {
        "crash": 0, "lost": 0, "preempted": 0, "hang": 0, "rendezvous": 0, "out_of_memory": 0, "early": 0,
        "backoff_initial_seconds": 1.0, "backoff_factor": 2.0, "backoff_maximum_seconds": 300.0, "permanent_codes": [],
    },
    "Timeouts": {
        "start_seconds": 600.0, "rendezvous_seconds": 600.0, "grace_seconds": 10.0, "run_seconds": None,
        "progress_seconds": None, "steps_seconds": None, "is_grace_set": False,
    },
    "Warm": {"modules": [], "keep_seconds": 600.0},
}  # fmt: skip
# The defaults of the options of engines.
_OPTIONS: Mapping[str, Mapping[str, object]] = {
    "Host": {"address": None, "port": None, "cpus": None, "memory_bytes": None, "gpus": None},
    "Hosts": {
        "all": [], "unique": "", "user": "", "config": None, "folder": None, "python": "python3", "shared": None,
        "lost_seconds": 60.0, "lease_seconds": 300.0, "pins": {},
    },
    "Image": {"name": None, "dockerfile": None, "context": ".", "base": None, "install": [], "registry": None},
    "Volume": {"claim": None, "size_bytes": None, "storage_class": None, "access": None},
    "Toleration": {"key": None, "operator": "Exists", "value": None, "effect": None, "seconds": None},
    "Cluster": {
        "unique": "", "user": "", "kubeconfig": None, "context": None, "namespace": None,
        "image": {}, "jobs": "single", "output": None, "output_at": None, "data": {}, "code": True, "node_selector": {},
        "tolerations": [], "priority_class": None, "service_account": None, "pull_secrets": [], "queue": None,
        "labels": {}, "annotations": {}, "shm_bytes": None, "run_as": None, "lost_seconds": 60.0,
        "network_policy": True, "pod": {}, "pods": {},
    },
}  # fmt: skip


def upgraded(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan of version 1 in the form of version 2; raise TypeError for other data."""
    plan = {"cluster": None, "hosts": None, "private_network": False, "data": [], **plan}
    cluster, hosts, private = plan.pop("cluster"), plan.pop("hosts"), plan.pop("private_network")
    plan["data"] = [_without_volume(each) for each in plan["data"]]
    plan |= {"where": "this machine", "is_elsewhere": False, "fetches_output": False}
    plan |= {"builds": plan.get("environment") is not None, "restarts_whole": False}
    if cluster is not None:
        whole = _checked(cluster).pop("starts_whole", False)
        options = _cluster(cluster)
        image = options["image"]
        builds = image["dockerfile"] is not None or image["base"] is not None
        plan |= {"where": "the cluster", "is_elsewhere": True, "builds": builds, "restarts_whole": whole}
        return {**plan, "options": options}
    if hosts is not None:
        options = _hosts(hosts)
        plan |= {"where": ", ".join(each["name"] for each in options["all"]), "is_elsewhere": True}
        return {**plan, "options": options, "fetches_output": True}
    return {**plan, "options": {"private_network": private}}


def _without_volume(data: Any) -> dict[str, Any]:
    """Return a data folder without its volume, which is in the options of the cluster."""
    return {name: value for name, value in _checked(data).items() if name != "volume"}


def _hosts(data: Any) -> dict[str, Any]:
    hosts = _filled("Hosts", data)
    return {**hosts, "all": [_filled("Host", each) for each in hosts["all"]]}


def _cluster(data: Any) -> dict[str, Any]:
    cluster = _filled("Cluster", data)
    output = cluster["output"]
    return {
        **cluster,
        "image": _filled("Image", cluster["image"]),
        "output": None if output is None else _filled("Volume", output),
        "data": {name: _filled("Volume", each) for name, each in _checked(cluster["data"]).items()},
        "tolerations": [_filled("Toleration", each) for each in cluster["tolerations"]],
    }


def _filled(kind: str, data: Any) -> dict[str, Any]:
    return {**_OPTIONS[kind], **_checked(data)}


def _checked(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TypeError(f"expected dict, got {data!r}")
    return data
