"""A pod: one container that becomes the replica's command, and one before it that makes everything ready."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.manifests.patch import merge
from drumline.engine.kubernetes.manifests.variables import Variables, escape
from drumline.engine.kubernetes.manifests.volumes import Mounts
from drumline.engine.kubernetes.paths import Object
from drumline.engine.kubernetes.place import PARTS, PROJECT, RUNTIME
from drumline.engine.kubernetes.plan_options import Cluster, Toleration, cluster_of
from drumline.engine.kubernetes.quantity import cores, quantity
from drumline.plan.types import Place, Plan, Resources
from drumline.record import Record, to_dict

REPLICA = "replica"
EXEC = 'exec "$@"'
GPU = "nvidia.com/gpu"
# Whoever an image's user is, this group may write to its volumes.
_GROUP = 1000
# The taints of a node that says that it is not well, and of one that says nothing any more.
_SILENCE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class PodContent(Record):
    """What differs between pods."""

    argv: Sequence[str]
    variables: Variables
    resources: Resources
    place: Place
    mounts: Mounts
    labels: Mapping[str, str]
    carries: bool  # there are parts to be unpacked
    peers: Object | None = None  # the variable with the names to be waited for
    prepared: Sequence[str] = ()  # folders to be waited for
    makes_folders: bool = False  # for its output
    container: str = REPLICA
    hostname: str | None = None
    subdomain: str | None = None
    waits_inside: bool = False  # nobody's name is known before its container runs
    becomes: str = EXEC  # how a shell goes on to the command


def template(plan: Plan, content: PodContent) -> Object:
    """A pod's template, patched with what the spec says of every pod."""
    cluster = cluster_of(plan)
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(plan.timeouts.grace_seconds),
        # Whoever is process 1 does not die of TERM unless it says so; with this, nobody of ours is.
        "shareProcessNamespace": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # variables for every Service of the namespace
        "securityContext": _pod_security(cluster.run_as),
        "initContainers": [_init(plan, content)] if content.carries and not content.waits_inside else None,
        "containers": [_container(plan, content)],
        "volumes": list(content.mounts.volumes) or None,
        "hostname": content.hostname,
        "subdomain": content.subdomain,
        "nodeSelector": dict(cluster.node_selector) or None,
        "tolerations": [_toleration(each) for each in _tolerations(cluster)] or None,
        "priorityClassName": cluster.priority_class,
        "serviceAccountName": cluster.service_account,
        "imagePullSecrets": [{"name": name} for name in cluster.pull_secrets] or None,
    }
    said = {key: value for key, value in spec.items() if value is not None}
    metadata: Object = {"labels": dict(content.labels)}
    if cluster.annotations:
        metadata["annotations"] = dict(cluster.annotations)
    aliases = {REPLICA: content.container}
    patched = merge(said, cluster.pod, aliases)
    return {
        "metadata": metadata,
        "spec": merge(patched, cluster.pods.get(content.labels.get(names.ROLE, ""), {}), aliases),
    }


def _container(plan: Plan, content: PodContent) -> Object:
    """The replica itself: a shell that says what Kubernetes cannot, and becomes the command."""
    variables = content.variables
    exports = list(variables.exports)
    if content.carries:  # behind what the spec or the image has
        exports.append(f'PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}"{RUNTIME}')
    if cluster_of(plan).run_as:
        # Whom the image does not know has neither a name nor a folder, and libraries ask for both.
        exports += ['USER="${USER:-drumline}"', 'HOME="$([ -w "${HOME:-/}" ] && echo "$HOME" || echo /tmp)"']
    steps = _ready(content) if content.carries and content.waits_inside else []
    script = "\n".join([*steps, *(f"export {each}" for each in exports), content.becomes])
    peers = [content.peers] if content.peers and content.waits_inside else []
    container: Object = {
        "name": content.container,
        "image": cluster_of(plan).image.name,
        "command": ["/bin/sh", "-c", escape(script), "sh"],
        "args": [escape(word) for word in content.argv],
        "workingDir": content.place.workdir or None,
        "env": [*variables.entries, *peers],
        "ports": [_port(content)] if content.place.port else None,
        "resources": _resources(content.resources, gpus=True) or None,
        "volumeMounts": list(content.mounts.mounts) or None,
        "securityContext": _security(),
    }
    return {key: value for key, value in container.items() if value is not None}


def _init(plan: Plan, content: PodContent) -> Object:
    """Makes folders, unpacks what was carried, and waits for data and for the names of the others."""
    container: Object = {
        "name": "drumline",
        "image": cluster_of(plan).image.name,
        "command": ["/bin/sh", "-c", escape("\n".join(_ready(content)))],
        "env": [content.peers] if content.peers else None,
        "resources": _resources(content.resources, gpus=False) or None,
        "volumeMounts": list(content.mounts.mounts) or None,
        "securityContext": _security(),
    }
    return {key: value for key, value in container.items() if value is not None}


def _ready(content: PodContent) -> list[str]:
    """The steps of a shell that makes a pod ready."""
    place = content.place
    made = [folder for folder in (place.output_dir, place.checkpoint_dir) if content.makes_folders]
    steps = ["set -e", *([f"mkdir -p {shlex.join(made)}"] if made else [])]
    steps += [f"until [ -e {shlex.quote(folder)} ]; do sleep 1; done" for folder in content.prepared]
    return [*steps, f"sh {PARTS}/ready.sh {PARTS} {PROJECT} {RUNTIME}"]


def _port(content: PodContent) -> Object:
    # The operator of TFJobs knows the port by this name; to others it is as good as any.
    name = "tfjob-port" if content.container == "tensorflow" else "training"
    return {"name": name, "containerPort": content.place.port}


def _resources(resources: Resources, *, gpus: bool) -> Object:
    """The same for request and limit: what is claimed is there, and not more."""
    claimed: Object = {}
    if resources.cpus is not None:
        claimed["cpu"] = cores(resources.cpus)
    if resources.memory_bytes is not None:
        claimed["memory"] = quantity(resources.memory_bytes)
    if gpus and resources.gpus:
        claimed[GPU] = str(resources.gpus)
    return {"requests": dict(claimed), "limits": claimed} if claimed else {}


def _pod_security(run_as: int | None) -> Object:
    """Whoever the image says, unless the spec does: nobody can know from outside whom an image can do with."""
    group = run_as or _GROUP
    user = {} if run_as is None else {"runAsUser": run_as, "runAsGroup": run_as, "runAsNonRoot": run_as != 0}
    return {
        **user,
        "fsGroup": group,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _security() -> Object:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _tolerations(cluster: Cluster) -> Iterator[Toleration]:
    """Those of the spec; and how long a node may be silent, where it does not say so: else that is five minutes."""
    yield from cluster.tolerations
    known = {each.key for each in cluster.tolerations if each.effect in (None, "NoExecute")}
    for key in _SILENCE:
        if key not in known and None not in known:
            yield Toleration(key, effect="NoExecute", seconds=math.ceil(cluster.lost_seconds))


def _toleration(each: Toleration) -> Object:
    spelled = {**to_dict(each), "tolerationSeconds": each.seconds}
    del spelled["seconds"]
    return {key: value for key, value in spelled.items() if value is not None}
