"""A TFJob of Kubeflow: a template for each role. Its operator names pods, writes TF_CONFIG and restarts pods."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.manifests.attempt import AttemptPods
from drumline.engine.kubernetes.manifests.jobs import metadata
from drumline.engine.kubernetes.manifests.pod import template
from drumline.engine.kubernetes.manifests.variables import IndexSource
from drumline.engine.kubernetes.paths import Object, new_object
from drumline.engine.kubernetes.plan_options import cluster_of
from drumline.errors import InputError
from drumline.plan.types import Launch, Plan

# A failed evaluator is restarted in its container: the operator would count the failure, and end the training.
_AGAIN = """until "$@"
do echo "drumline: the evaluator failed with exit code $?; it restarts in 10 s"; sleep 10
done"""
CONTAINER = "tensorflow"  # the name that the operator looks for
_ROLES = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
_COUNTED = f"metadata.labels['{names.TFJOB_INDEX}']"


def tfjob(plan: Plan, pods: AttemptPods, launches: Sequence[Launch]) -> Object:
    """Return the TFJob of an attempt; raise InputError for what a TFJob does not support."""
    for refusal in tfjob_problems(plan):
        raise InputError(refusal)
    attempt = launches[0].attempt
    roles = dict.fromkeys(launch.replica.id.role for launch in launches)
    spec: Object = {
        "runPolicy": _run_policy(plan),
        # Without a chief, worker 0 decides, or all workers.
        "successPolicy": "AllWorkers" if plan.success == "all-workers" else "",
        "tfReplicaSpecs": {_ROLES[role]: _replicas(plan, pods, role, launches) for role in roles},
    }
    labels = {**names.labels(plan), names.ATTEMPT: str(attempt)}
    return new_object("TFJob", metadata(plan, names.service(plan, attempt), labels), spec=spec)


def tfjob_problems(plan: Plan) -> Iterator[str]:
    """Yield a problem for each property of a plan that a TFJob does not support.

    A TFJob has one template for each role, and its own rules for its end.
    """
    if plan.framework not in ("tensorflow", "plain"):
        yield f"a TFJob is for TensorFlow; `{plan.framework}` runs on `jobset` or `kubernetes`"
    for group in names.groups(plan):
        role = group.replicas[0].id.role
        if group.name == role:
            continue
        if role == "worker" and plan.success == "worker-0":
            continue  # the default of a TFJob
        if group.replicas[0].id == plan.chief and (output := cluster_of(plan).output) and not output.is_shared:
            yield (
                "a ReadWriteOnce output volume is for the chief only, and in a TFJob all workers share a template:"
                " add `chief: 1` to the roles, or set `access: ReadWriteMany`"
            )
        else:
            yield f"in a TFJob all replicas of a role share a template: remove `roles.{role}.first`"
    if plan.replicas_of("chief") and plan.success != "chief":
        yield "a TFJob with a chief ends when the chief has finished; remove `success`"
    for role in dict.fromkeys(replica.id.role for replica in plan.replicas):
        if len({replica.port for replica in plan.replicas_of(role)}) > 1:
            yield f"in a TFJob all replicas of a role have the same port: set `roles.{role}.port` to a number"
    if any("TF_CONFIG" in replica.env for replica in plan.replicas):
        yield "the TFJob operator writes TF_CONFIG itself; remove it from `env`"


def _replicas(plan: Plan, pods: AttemptPods, role: str, launches: Sequence[Launch]) -> Object:
    own = [launch for launch in launches if launch.replica.id.role == role]
    group = names.Group(role, tuple(launch.replica for launch in own))
    labels = names.labels_of_group(plan, group, own[0].attempt)
    # A pod's name resolves only when its container runs, so the container waits for the others.
    content = pods.content(own, labels, IndexSource(_COUNTED)).replace(container=CONTAINER, waits_inside=True)
    pod = template(plan, content.replace(becomes=_AGAIN) if role == "evaluator" else content)
    pod["spec"].pop("restartPolicy", None)  # set by the operator
    return {"replicas": len(own), "restartPolicy": _restart_policy(plan, role), "template": pod}


def _restart_policy(plan: Plan, role: str) -> str:
    """Return the policy for the restart budget: after any failure, after disruptions only, or never."""
    if plan.restart.permanent_codes and plan.restart.crash and role != "evaluator":
        return "ExitCode"
    if plan.restart.crash or role == "evaluator":
        return "OnFailure"
    return "ExitCode" if max(plan.restart.lost, plan.restart.preempted) else "Never"


def _run_policy(plan: Plan) -> Object:
    # Pods that have ended are kept for their logs; those that still run, such as ps, are deleted.
    policy: Object = {"cleanPodPolicy": "Running"}
    budget = max(plan.restart.crash, plan.restart.lost, plan.restart.preempted)
    if budget:
        # The operator counts the restarts of all containers.
        policy["backoffLimit"] = budget * len(plan.replicas) + 1
    if plan.timeouts.run_seconds is not None:
        policy["activeDeadlineSeconds"] = math.ceil(plan.timeouts.run_seconds)
    return policy
