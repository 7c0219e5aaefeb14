"""A TFJob of Kubeflow: a template for each role. Its operator names the pods, writes TF_CONFIG, starts them again."""

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

# An evaluator that fails begins again by itself: the operator would count that, and end the training for it.
_AGAIN = """until "$@"
do echo "drumline: the evaluator has failed with exit code $?; it begins again in 10 s"; sleep 10
done"""
CONTAINER = "tensorflow"  # the operator looks for it by this name
_ROLES = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
_COUNTED = f"metadata.labels['{names.TFJOB_INDEX}']"


def tfjob(plan: Plan, line: AttemptPods, launches: Sequence[Launch]) -> Object:
    """The TFJob of an attempt; raise InputError for what it cannot be told."""
    for refusal in tfjob_problems(plan):
        raise InputError(refusal)
    attempt = launches[0].attempt
    roles = dict.fromkeys(launch.replica.id.role for launch in launches)
    spec: Object = {
        "runPolicy": _run_policy(plan),
        # Without a chief, worker 0 decides, or all of them do.
        "successPolicy": "AllWorkers" if plan.success == "all-workers" else "",
        "tfReplicaSpecs": {_ROLES[role]: _replicas(plan, line, role, launches) for role in roles},
    }
    labels = {**names.labels(plan), names.ATTEMPT: str(attempt)}
    return new_object("TFJob", metadata(plan, names.service(plan, attempt), labels), spec=spec)


def tfjob_problems(plan: Plan) -> Iterator[str]:
    """What a TFJob cannot be told: it has one template for each role, and its own idea of when it is over."""
    if plan.framework not in ("tensorflow", "plain"):
        yield f"a TFJob is for TensorFlow; `{plan.framework}` runs on `jobset` or `kubernetes`"
    for group in names.groups(plan):
        role = group.replicas[0].id.role
        if group.name == role:
            continue
        if role == "worker" and plan.success == "worker-0":
            continue  # that is what a TFJob does without being told
        if group.replicas[0].id == plan.chief and (output := cluster_of(plan).output) and not output.is_shared:
            yield (
                "a ReadWriteOnce output volume is for the chief alone, and in a TFJob all workers are alike:"
                " add `chief: 1` to the roles, or say `access: ReadWriteMany`"
            )
        else:
            yield f"in a TFJob all replicas of a role are alike: leave out `roles.{role}.first`"
    if plan.replicas_of("chief") and plan.success != "chief":
        yield "a TFJob with a chief is over when the chief has finished; leave out `success`"
    for role in dict.fromkeys(replica.id.role for replica in plan.replicas):
        if len({replica.port for replica in plan.replicas_of(role)}) > 1:
            yield f"in a TFJob all replicas of a role have one port: give `roles.{role}.port` as a number"
    if any("TF_CONFIG" in replica.env for replica in plan.replicas):
        yield "the operator of TFJobs writes TF_CONFIG itself; leave it out of `env`"


def _replicas(plan: Plan, line: AttemptPods, role: str, launches: Sequence[Launch]) -> Object:
    own = [launch for launch in launches if launch.replica.id.role == role]
    group = names.Group(role, tuple(launch.replica for launch in own))
    labels = names.labels_of_group(plan, group, own[0].attempt)
    # A pod's name is found when its container runs, and not before: there it waits for the others.
    content = line.content(own, labels, IndexSource(_COUNTED)).replace(container=CONTAINER, waits_inside=True)
    pod = template(plan, content.replace(becomes=_AGAIN) if role == "evaluator" else content)
    pod["spec"].pop("restartPolicy", None)  # the operator's
    return {"replicas": len(own), "restartPolicy": _restart_policy(plan, role), "template": pod}


def _restart_policy(plan: Plan, role: str) -> str:
    """As the budget says: after any failure, only when it had to leave, or never. An evaluator never decides."""
    if plan.restart.permanent_codes and plan.restart.crash and role != "evaluator":
        return "ExitCode"
    if plan.restart.crash or role == "evaluator":
        return "OnFailure"
    return "ExitCode" if max(plan.restart.lost, plan.restart.preempted) else "Never"


def _run_policy(plan: Plan) -> Object:
    # Who has ended stays with its log; who has not, as ps never do, goes.
    policy: Object = {"cleanPodPolicy": "Running"}
    budget = max(plan.restart.crash, plan.restart.lost, plan.restart.preempted)
    if budget:
        # The operator counts every container that starts again, and stops when there are as many as this.
        policy["backoffLimit"] = budget * len(plan.replicas) + 1
    if plan.timeouts.run_seconds is not None:
        policy["activeDeadlineSeconds"] = math.ceil(plan.timeouts.run_seconds)
    return policy
