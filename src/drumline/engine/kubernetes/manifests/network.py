"""The network of a run: a Service for the names of its pods, and a policy that admits only them."""

from __future__ import annotations

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.paths import Object, new_object
from drumline.plan.types import Plan


def service(plan: Plan, ports: set[int], attempt: int) -> Object:
    """Return the headless Service of an attempt: pods have a name in it as soon as they have an address."""
    # Headless Services need no ports; a single port gets a name, so that programs can look it up.
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
    """Return a policy that admits only pods of the run: TensorFlow's gRPC has no authentication."""
    own = {"matchLabels": {names.RUN: names.base(plan)}}
    spec = {"podSelector": own, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": own}]}]}
    return new_object("NetworkPolicy", names.metadata(plan, names.base(plan)), spec=spec)
