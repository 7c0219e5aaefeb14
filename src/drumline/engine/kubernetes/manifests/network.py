"""The network of a run: names for its pods, and a policy that keeps others out."""

from __future__ import annotations

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.paths import Object, new_object
from drumline.plan.types import Plan


def service(plan: Plan, ports: set[int], attempt: int) -> Object:
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
    return new_object("Service", metadata, spec=spec)


def policy(plan: Plan) -> Object:
    """Only pods of the run reach its pods: TensorFlow's gRPC lets everybody in who can connect."""
    own = {"matchLabels": {names.RUN: names.base(plan)}}
    spec = {"podSelector": own, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": own}]}]}
    return new_object("NetworkPolicy", names.metadata(plan, names.base(plan)), spec=spec)
