"""What an absent field means in a plan of version 1, which left out fields at their default: the defaults of that time.

Later versions write every field. These values never change.
"""

from __future__ import annotations

from collections.abc import Mapping

ABSENT: Mapping[str, Mapping[str, object]] = {
    "Plan": {
        "workdir": ".", "output": None, "checkpoint": None, "parameters": {}, "data": [], "environment": None,
        "preparations": [], "restart": {}, "timeouts": {}, "tf_config_always": False, "evaluator_in_cluster": False,
        "torch_rendezvous_always": False, "private_network": False, "oversubscribe": False, "warm": None,
        "tensorboard": False,
    },
    "Replica": {"port": None, "port_fixed": False},
    "Resources": {"cpus": None, "memory_bytes": None, "gpus": None},
    "Environment": {"requirements": [], "pythons": []},
    "Data": {"volume": None},
    "Restart": {
        "crash": 0, "lost": 0, "preempted": 0, "hang": 0, "rendezvous": 0, "out_of_memory": 0, "early": 0,
        "backoff_initial_seconds": 1.0, "backoff_factor": 2.0, "backoff_maximum_seconds": 300.0, "permanent_codes": [],
    },
    "Timeouts": {
        "start_seconds": 600.0, "rendezvous_seconds": 600.0, "grace_seconds": 10.0, "run_seconds": None,
        "progress_seconds": None, "steps_seconds": None, "is_grace_set": False,
    },
    "Warm": {"modules": [], "keep_seconds": 600.0},
    "Host": {"address": None, "port": None, "cpus": None, "memory_bytes": None, "gpus": None},
    "Hosts": {
        "all": [], "unique": "", "user": "", "config": None, "folder": None, "python": "python3", "shared": None,
        "lost_seconds": 60.0, "lease_seconds": 300.0, "pins": {},
    },
    "Image": {"name": None, "dockerfile": None, "context": ".", "base": None, "install": [], "registry": None},
    "Volume": {"claim": None, "size_bytes": None, "storage_class": None, "access": None},
    "Toleration": {"key": None, "operator": "Exists", "value": None, "effect": None, "seconds": None},
    "Cluster": {
        "unique": "", "user": "", "kubeconfig": None, "context": None, "namespace": None, "starts_whole": False,
        "image": {}, "jobs": "single", "output": None, "output_at": None, "data": {}, "code": True, "node_selector": {},
        "tolerations": [], "priority_class": None, "service_account": None, "pull_secrets": [], "queue": None,
        "labels": {}, "annotations": {}, "shm_bytes": None, "run_as": None, "lost_seconds": 60.0,
        "network_policy": True, "pod": {}, "pods": {},
    },
}  # fmt: skip
