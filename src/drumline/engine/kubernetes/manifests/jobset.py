"""A JobSet: a replicated Job for each role; its controller restarts all of them together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.manifests.attempt import AttemptPods
from drumline.engine.kubernetes.manifests.jobs import COUNTED, indexed, metadata
from drumline.engine.kubernetes.manifests.pod import template
from drumline.engine.kubernetes.manifests.variables import IndexSource
from drumline.engine.kubernetes.paths import Object, new_object
from drumline.plan.types import Launch, Plan

_RESTARTED = f"metadata.labels['{names.RESTART_ATTEMPT}']"
# Reasons of a failed Job: its podFailurePolicy matched a disruption, or a pod failed.
_DISRUPTED, _FAILED = "PodFailurePolicy", "BackoffLimitExceeded"


def jobset(plan: Plan, pods: AttemptPods, launches: Sequence[Launch]) -> Object:
    """Return the JobSet of an attempt; later attempts are its own restarts."""
    attempt = launches[0].attempt
    by_id = {launch.replica.id: launch for launch in launches}
    groups = list(names.groups(plan))
    replicated = [_replicated(plan, pods, group, [by_id[each.id] for each in group.replicas]) for group in groups]
    deciding = [group.name for group in groups if _decides(plan, group)]
    spec: Object = {
        # Pods wait for names, so names must resolve before pods are ready.
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": deciding},
        "failurePolicy": _failure_policy(plan),
        "replicatedJobs": replicated,
    }
    labels = {**names.labels(plan), names.ATTEMPT: str(attempt)}
    return new_object("JobSet", metadata(plan, names.service(plan, attempt), labels), spec=spec)


def _replicated(plan: Plan, pods: AttemptPods, group: names.Group, launches: Sequence[Launch]) -> Object:
    labels = names.labels_of_group(plan, group, launches[0].attempt)
    index_source = IndexSource(COUNTED, group.first_index, attempt_field=_RESTARTED)
    pod = template(plan, pods.content(launches, labels, index_source))
    spec: Object = {
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": _rules(group)},
        **indexed(pod, len(launches)),
    }
    if plan.timeouts.run_seconds is not None:
        spec["activeDeadlineSeconds"] = math.ceil(plan.timeouts.run_seconds)
    return {"name": group.name, "replicas": 1, "template": {"spec": spec}}


def _decides(plan: Plan, group: names.Group) -> bool:
    """Return whether the run's success needs these replicas to succeed."""
    role = group.replicas[0].id.role
    match plan.success:
        case "chief":
            return role == "chief"
        case "worker-0":
            return role == "worker" and group.first_index == 0
        case _:
            return role == "worker"


def _rules(group: names.Group) -> list[Object]:
    """Return the failure rules of a Job: an evaluator always restarts; a disruption fails other Jobs with a reason."""
    disrupted = [{"type": "DisruptionTarget"}]
    if group.replicas[0].id.role == "evaluator":
        failed = {"operator": "NotIn", "values": [0]}
        return [{"action": "Ignore", "onPodConditions": disrupted}, {"action": "Ignore", "onExitCodes": failed}]
    return [{"action": "FailJob", "onPodConditions": disrupted}]


def _failure_policy(plan: Plan) -> Object:
    """Return the restart budget as a JobSet can express it: one number, for one or both classes of failure."""
    crash, disrupted = plan.restart.crash, max(plan.restart.lost, plan.restart.preempted)
    policy: Object = {"maxRestarts": max(crash, disrupted)}
    final = [reason for reason, budget in ((_FAILED, crash), (_DISRUPTED, disrupted)) if not budget]
    if len(final) == 1:
        rule = {"name": "notAgain", "action": "FailJobSet", "onJobFailureReasons": final}
        policy["rules"] = [rule]
    return policy
