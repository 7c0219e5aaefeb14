"""Jobs: one for each replica, or an indexed Job for all replicas of a role that share a template."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.manifests.attempt import AttemptPods
from drumline.engine.kubernetes.manifests.pod import template
from drumline.engine.kubernetes.manifests.variables import IndexSource
from drumline.engine.kubernetes.paths import Object, new_object
from drumline.engine.kubernetes.plan_options import cluster_of
from drumline.plan.types import Launch, Plan

# The index that an indexed Job writes to a pod.
COUNTED = f"metadata.annotations['{names.COMPLETION_INDEX}']"


def jobs(plan: Plan, pods: AttemptPods, launches: Sequence[Launch]) -> Iterator[Object]:
    """Yield the Jobs of these launches; a replica that restarts alone gets its own Job."""
    if cluster_of(plan).jobs == "single" or any(launch.incarnation for launch in launches):
        yield from (_single(plan, pods, launch) for launch in launches)
        return
    by_id = {launch.replica.id: launch for launch in launches}
    for group in names.groups(plan):
        several = [by_id[replica.id] for replica in group.replicas if replica.id in by_id]
        if several:
            yield _indexed(plan, pods, group, several)


def job(plan: Plan, name: str, labels: Object, pod: Object) -> Object:
    """Return a Job of one pod, which the cluster never restarts: the supervisor does."""
    return _job(plan, name, labels, {"backoffLimit": 0, "template": pod})


def indexed(pod: Object, count: int) -> Object:
    """Return the fields of an indexed Job; its pods are numbered from 0."""
    return {"completionMode": "Indexed", "completions": count, "parallelism": count, "template": pod}


def metadata(plan: Plan, name: str, labels: Object) -> Object:
    """Return the metadata of an object that creates pods, with its Kueue queue if it has one."""
    cluster = cluster_of(plan)
    queued = {"kueue.x-k8s.io/queue-name": cluster.queue} if cluster.queue else {}
    noted = {"annotations": dict(cluster.annotations)} if cluster.annotations else {}
    return {"name": name, "labels": {**labels, **queued}, **noted}


def _single(plan: Plan, pods: AttemptPods, launch: Launch) -> Object:
    replica = launch.replica.id
    labels = names.labels_of(plan, replica, launch.attempt, launch.incarnation)
    hostname, _, subdomain = launch.place.host.partition(".")
    content = pods.content([launch], labels).replace(hostname=hostname, subdomain=subdomain)
    return job(plan, names.job(plan, replica, launch.attempt, launch.incarnation), labels, template(plan, content))


def _indexed(plan: Plan, pods: AttemptPods, group: names.Group, launches: Sequence[Launch]) -> Object:
    attempt = launches[0].attempt
    labels = names.labels_of_group(plan, group, attempt)
    content = pods.content(launches, labels, IndexSource(COUNTED, group.first_index))
    pod = template(plan, content.replace(subdomain=names.service(plan, attempt)))
    # A failed pod does not stop the others: the supervisor decides that.
    spec = {"backoffLimitPerIndex": 0, **indexed(pod, len(launches))}
    return _job(plan, names.role_job(plan, group.name, attempt), labels, spec)


def _job(plan: Plan, name: str, labels: Object, spec: Object) -> Object:
    # `Failed`: a deleted pod counts as failed, after it has terminated.
    return new_object("Job", metadata(plan, name, labels), spec={"podReplacementPolicy": "Failed", **spec})
