"""A TFJob of Kubeflow: a template for each role. Its operator names the pods, writes TF_CONFIG, starts them again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.manifests.jobs import metadata
from drumline.engine.kubernetes.manifests.line import Line
from drumline.engine.kubernetes.manifests.variables import Counting
from drumline.plan.types import Launch, Plan

Json = dict[str, Any]

CONTAINER = "tensorflow"  # the operator looks for it by this name
_ROLES = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
_COUNTED = f"metadata.labels['{names.TFJOB_INDEX}']"


def tfjob(plan: Plan, line: Line, launches: Sequence[Launch]) -> Json:
    """The TFJob of an attempt."""
    attempt = launches[0].attempt
    roles = dict.fromkeys(launch.replica.id.role for launch in launches)
    spec: Json = {
        "runPolicy": _run_policy(plan),
        # Without a chief, worker 0 decides, or all of them do.
        "successPolicy": "AllWorkers" if plan.success == "all-workers" else "",
        "tfReplicaSpecs": {_ROLES[role]: _replicas(plan, line, role, launches) for role in roles},
    }
    labels = {**names.labels(plan), names.ATTEMPT: str(attempt)}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": metadata(plan, names.service(plan, attempt), labels),
        "spec": spec,
    }


def _replicas(plan: Plan, line: Line, role: str, launches: Sequence[Launch]) -> Json:
    own = [launch for launch in launches if launch.replica.id.role == role]
    group = names.Group(role, tuple(launch.replica for launch in own))
    labels = names.labels_of_group(plan, group, own[0].attempt)
    # A pod's name is found when its container runs, and not before: there it waits for the others.
    pod = line.pod(own, labels, counting=Counting(_COUNTED), container=CONTAINER, waits_inside=True)
    pod["spec"].pop("restartPolicy", None)  # the operator's
    return {"replicas": len(own), "restartPolicy": _restart_policy(plan, role), "template": pod}


def _restart_policy(plan: Plan, role: str) -> str:
    """As the budget says: after any failure, only when it had to leave, or never. An evaluator never decides."""
    if plan.restart.crash or role == "evaluator":
        return "OnFailure"
    return "ExitCode" if max(plan.restart.lost, plan.restart.preempted) else "Never"


def _run_policy(plan: Plan) -> Json:
    # Who has ended stays with its log; who has not, as ps never do, goes.
    policy: Json = {"cleanPodPolicy": "Running"}
    budget = max(plan.restart.crash, plan.restart.lost, plan.restart.preempted)
    if budget:
        # The operator counts every container that starts again, and stops when there are as many as this.
        policy["backoffLimit"] = budget * len(plan.replicas) + 1
    if plan.timeouts.run_seconds is not None:
        policy["activeDeadlineSeconds"] = math.ceil(plan.timeouts.run_seconds)
    return policy
