"""The network of a run: names for its pods, and a policy that keeps others out."""

from __future__ import annotations

from typing import Any

from drumline.engine.kubernetes import names
from drumline.plan.types import Plan

Json = dict[str, Any]


def service(plan: Plan, ports: set[int], attempt: int) -> Json:
    """The domain of an attempt's pods: each has a name in it as soon as it has an address, ready or not."""
    # Headless Services need no ports; with one for all, programs can ask for it by name.
    named = [{"name": "training", "port": port} for port in ports] if len(ports) == 1 else None
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {names.RUN: names.base(plan), names.ATTEMPT: str(attempt)},
        **({"ports": named} if named else {}),
    }
    metadata = {"name": names.service(plan, attempt), "labels": {**names.labels(plan), names.ATTEMPT: str(attempt)}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def policy(plan: Plan) -> Json:
    """Only pods of the run reach its pods: TensorFlow's gRPC lets everybody in who can connect."""
    own = {"matchLabels": {names.RUN: names.base(plan)}}
    spec = {"podSelector": own, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": own}]}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": names.base(plan), "labels": names.labels(plan)},
        "spec": spec,
    }
