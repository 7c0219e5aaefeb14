"""TF_CONFIG: the addresses of the cluster, and the task of each replica."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from drumline.plan.types import LaunchValue, Placement, Plan, ReplicaId, Shared

RESERVED = frozenset({"TF_CONFIG"})

Cluster = Mapping[str, Sequence[str]]

# A cluster with a longer text (in characters) is kept once for all replicas, not in the value of each replica.
_INLINE = 1024


def variables(plan: Plan, placement: Placement) -> Callable[[ReplicaId], Mapping[str, LaunchValue]]:
    """Return the function that returns the TF_CONFIG of each replica.

    A single replica has none, unless the spec has `tensorflow: {tf_config: always}`.
    """
    if len(plan.replicas) == 1 and not plan.tf_config_always:
        return lambda _: {}
    cluster_addresses = {
        role: [placement[replica.id].address for replica in plan.replicas_of(role)]
        for role in ("chief", "worker", "ps", "evaluator")
        if plan.replicas_of(role)
    }
    # If its peers knew the evaluator, training would wait for it.
    training = {
        role: addresses
        for role, addresses in cluster_addresses.items()
        if role != "evaluator" or plan.evaluator_in_cluster
    }
    text, own_text = json.dumps(training), json.dumps(cluster_addresses)
    beside = {"GRPC_FAIL_FAST": "use_caller"} if "ps" in training else {}

    def variables_of(me: ReplicaId) -> Mapping[str, LaunchValue]:
        is_evaluator = me.role == "evaluator"
        cluster = own_text if is_evaluator else text
        before, after = '{"cluster": ', f', "task": {json.dumps({"type": me.role, "index": me.index})}}}'
        if len(cluster) <= _INLINE:
            return {"TF_CONFIG": before + cluster + after, **beside}
        name = "DRUMLINE_EVALUATOR_CLUSTER" if is_evaluator else "DRUMLINE_CLUSTER"
        return {"TF_CONFIG": Shared(before, name, cluster, after), **beside}

    return variables_of


def tf_config(cluster: Cluster, me: ReplicaId) -> dict[str, object]:
    """Return the TF_CONFIG of one replica for a cluster of addresses; the evaluator is listed only in its own."""
    listed = {
        role: list(addresses)
        for role, addresses in cluster.items()
        if addresses and (role != "evaluator" or me.role == "evaluator")
    }
    return {"cluster": listed, "task": {"type": me.role, "index": me.index}}
