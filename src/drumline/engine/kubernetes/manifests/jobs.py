"""Jobs: one for each replica, which any cluster can run; or an indexed one for all of a role that are alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.manifests.line import Line
from drumline.plan.types import Launch, Plan

Json = dict[str, Any]


def single(plan: Plan, line: Line, launch: Launch) -> Json:
    """The Job of one life of one replica. It never makes a second pod: starting again is the supervisor's."""
    replica = launch.replica.id
    labels = names.labels_of(plan, replica, launch.attempt, launch.incarnation)
    pod = line.pod(
        [launch],
        labels,
        hostname=f"{replica.role}-{replica.index}",
        subdomain=names.service(plan, launch.attempt),
    )
    return job(plan, names.job(plan, replica, launch.attempt, launch.incarnation), labels, pod)


def job(plan: Plan, name: str, labels: Json, pod: Json) -> Json:
    """A Job around a pod."""
    # `Failed`: a pod that is being deleted is waited for, and then it counts as one that failed.
    spec: Json = {"backoffLimit": 0, "podReplacementPolicy": "Failed", "template": pod}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(plan, name, labels), "spec": spec}


def metadata(plan: Plan, name: str, labels: Json) -> Json:
    """The metadata of what runs pods: with the queue that lets it begin, if it waits in one."""
    cluster = names.cluster(plan)
    queued = {"kueue.x-k8s.io/queue-name": cluster.queue} if cluster.queue else {}
    noted = {"annotations": dict(cluster.annotations)} if cluster.annotations else {}
    return {"name": name, "labels": {**labels, **queued}, **noted}


def jobs(plan: Plan, line: Line, launches: Sequence[Launch]) -> Iterator[Json]:
    """The Jobs of these launches."""
    yield from (single(plan, line, launch) for launch in launches)
