"""A pod: a container that runs the replica's command, and an init container that prepares it."""

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
# The group that may write to volumes, whatever the image's user is.
_GROUP = 1000
# The taints of a node that reports problems, and of one that does not answer.
_SILENCE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class PodContent(Record):
    """The properties of a pod that differ between the pods of a run."""

    argv: Sequence[str]
    variables: Variables
    resources: Resources
    place: Place
    mounts: Mounts
    labels: Mapping[str, str]
    carries: bool  # it has ConfigMaps to unpack
    peers: Object | None = None  # the variable with the names to wait for
    prepared: Sequence[str] = ()  # folders to wait for
    makes_folders: bool = False  # creates its output folders
    container: str = REPLICA
    hostname: str | None = None
    subdomain: str | None = None
    waits_inside: bool = False  # waits in the container, since pods have names only when it runs
    becomes: str = EXEC  # the shell code that runs the command


def template(plan: Plan, content: PodContent) -> Object:
    """Return a pod's template, with the patches of the spec applied."""
    cluster = cluster_of(plan)
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(plan.timeouts.grace_seconds),
        # Process 1 ignores TERM by default; with this, the command is not process 1.
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
    present = {key: value for key, value in spec.items() if value is not None}
    metadata: Object = {"labels": dict(content.labels)}
    if cluster.annotations:
        metadata["annotations"] = dict(cluster.annotations)
    aliases = {REPLICA: content.container}
    patched = merge(present, cluster.pod, aliases)
    return {
        "metadata": metadata,
        "spec": merge(patched, cluster.pods.get(content.labels.get(names.ROLE, ""), {}), aliases),
    }


def _container(plan: Plan, content: PodContent) -> Object:
    """Return the replica's container: a shell that exports variables, then executes the command."""
    variables = content.variables
    exports = list(variables.exports)
    if content.carries:  # after the paths of the spec or the image
        exports.append(f'PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}"{RUNTIME}')
    if cluster_of(plan).run_as:
        # A user that the image does not have has neither a name nor a home, which libraries need.
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
    """Return the init container, which makes folders, unpacks the project, and waits for data and names."""
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
    """Return the shell commands that prepare a pod."""
    place = content.place
    made = [folder for folder in (place.output_dir, place.checkpoint_dir) if content.makes_folders]
    steps = ["set -e", *([f"mkdir -p {shlex.join(made)}"] if made else [])]
    steps += [f"until [ -e {shlex.quote(folder)} ]; do sleep 1; done" for folder in content.prepared]
    return [*steps, f"sh {PARTS}/ready.sh {PARTS} {PROJECT} {RUNTIME}"]


def _port(content: PodContent) -> Object:
    # The TFJob operator looks for a port of this name.
    name = "tfjob-port" if content.container == "tensorflow" else "training"
    return {"name": name, "containerPort": content.place.port}


def _resources(resources: Resources, *, gpus: bool) -> Object:
    """Return the resources, with the same values as requests and limits."""
    claimed: Object = {}
    if resources.cpus is not None:
        claimed["cpu"] = cores(resources.cpus)
    if resources.memory_bytes is not None:
        claimed["memory"] = quantity(resources.memory_bytes)
    if gpus and resources.gpus:
        claimed[GPU] = str(resources.gpus)
    return {"requests": dict(claimed), "limits": claimed} if claimed else {}


def _pod_security(run_as: int | None) -> Object:
    """Return the security context of a pod; the user is the image's, unless the spec sets one."""
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
    """Yield the tolerations of the spec, then those for unreachable nodes, for which Kubernetes sets five minutes."""
    yield from cluster.tolerations
    known = {each.key for each in cluster.tolerations if each.effect in (None, "NoExecute")}
    for key in _SILENCE:
        if key not in known and None not in known:
            yield Toleration(key, effect="NoExecute", seconds=math.ceil(cluster.lost_seconds))


def _toleration(each: Toleration) -> Object:
    spelled = {**to_dict(each), "tolerationSeconds": each.seconds}
    del spelled["seconds"]
    return {key: value for key, value in spelled.items() if value is not None}
