"""The addresses of replicas in a cluster, and their folders in a pod. Pure."""

from __future__ import annotations

import math
import posixpath

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.plan_options import cluster_of
from drumline.errors import InputError
from drumline.plan.types import Place, Placement, Plan, Replica, ReplicaId

PORT = 2222

PARTS = "/drumline/parts"  # the packed project and runtime
PROJECT = "/drumline/project"
RUNTIME = "/drumline/runtime"
OUTPUT = "/drumline/output"
DATA = "/drumline/data"
PREPARED = "prepared"  # the folder on a volume that a preparation makes
# A key of the owner's data, which pods see as a file among the parts: if it exists, they no longer wait for names.
NAMES_NOT_AWAITED = "begun"


def place(plan: Plan, *, attempt: int = 0) -> Placement:
    """Return the DNS name and the folders of each replica."""
    _require_image(plan)
    _require_volumes(plan)
    here = place_helper(plan)
    known = hosts(plan, attempt)
    return {
        replica.id: here.replace(
            host=known[replica.id],
            port=replica.port or PORT,
            domain=f".{names.service(plan, attempt)}" if "." in known[replica.id] else None,
            cores=_cores(replica),
            gpus=_gpus(replica),
            # The TFJob operator writes TF_CONFIG if there are several replicas.
            written=("TF_CONFIG",) if plan.engine == "tfjob" else (),
        )
        for replica in plan.replicas
    }


def place_helper(plan: Plan) -> Place:
    """Return the place of a helper: its folders, without an address."""
    output_dir = _on_output(plan, plan.output) if plan.output else _own_output(plan)
    checkpoint = _on_output(plan, plan.checkpoint) if plan.checkpoint else posixpath.join(output_dir, "checkpoint")
    return Place(
        host="",
        port=0,
        workdir=workdir(plan),
        output_dir=output_dir,
        checkpoint_dir=checkpoint,
        data_dirs=tuple(_data_dir(plan, data.variable, data.path) for data in plan.data),
        runtime=RUNTIME,
    )


def workdir(plan: Plan) -> str:
    """Return the folder where commands run: in the project, or empty for the image's own."""
    if posixpath.isabs(plan.workdir):
        return posixpath.normpath(plan.workdir)
    if cluster_of(plan).code:
        return _below(PROJECT, plan.workdir)
    if posixpath.normpath(plan.workdir) == ".":
        return ""
    raise InputError(
        f"workdir `{plan.workdir}` is in the project's folder, which is not copied into the pods",
        hint=f"remove `engine.{plan.engine}.code: false`, or set an absolute path in the image",
    )


def output_mount(plan: Plan) -> str:
    """Return the mount path of the output volume: the spec's absolute path, else the default."""
    at = cluster_of(plan).output_at
    return OUTPUT if at is None or posixpath.normpath(at) == "/" else posixpath.normpath(at)


def data_mount(variable: str, path: str) -> str:
    """Return the mount path of a data volume."""
    name = variable.removeprefix("DATA_DIR").removeprefix("_").lower() or "data"
    return posixpath.normpath(path) if posixpath.isabs(path) else posixpath.join(DATA, name)


def _require_image(plan: Plan) -> None:
    """Raise InputError if the plan has no image."""
    image = cluster_of(plan).image
    if image.name is None and not image.is_built:
        raise InputError(
            f"`engine.{plan.engine}.image` is missing: pods need an image",
            hint=f"add it: `engine: {{{plan.engine}: {{image: …}}}}`",
        )


def _require_volumes(plan: Plan) -> None:
    """Raise InputError for prepared data without a volume."""
    for each in plan.preparations:
        if each.variable not in cluster_of(plan).data:
            raise InputError(
                f"`prepare` makes `{each.path}` in a separate pod, where other pods cannot read it",
                hint="add a `volume` to the data, such as `volume: {size: 10GiB, access: ReadWriteMany}`",
            )


def awaits_names(plan: Plan) -> bool:
    """Return whether pods wait until the names of the others resolve; without a framework they do not."""
    return plan.framework != "plain" and len(plan.replicas) > 1


def hosts(plan: Plan, attempt: int) -> dict[ReplicaId, str]:
    """Return the DNS name of each replica's pod, as its controller sets it."""
    domain = names.service(plan, attempt)
    if plan.engine == "kubernetes" and cluster_of(plan).jobs == "single":
        return {each.id: f"{each.id.role}-{each.id.index}.{domain}" for each in plan.replicas}
    if plan.engine == "tfjob":
        return {each.id: f"{domain}-{each.id.role}-{each.id.index}" for each in plan.replicas}

    def job(group: names.Group) -> str:
        own = f"{domain}-{group.name}-0"
        return own if plan.engine == "jobset" else names.role_job(plan, group.name, attempt)

    return {
        replica.id: f"{job(group)}-{number}.{domain}"
        for group in names.groups(plan)
        for number, replica in enumerate(group.replicas)
    }


def _own_output(plan: Plan) -> str:
    """Return the output folder: the whole volume if it was made for the run, else a folder of the run."""
    volume = cluster_of(plan).output
    return posixpath.join(OUTPUT, names.base(plan)) if volume and volume.claim else OUTPUT


def _on_output(plan: Plan, path: str) -> str:
    return posixpath.normpath(path) if posixpath.isabs(path) else _below(output_mount(plan), path)


def _data_dir(plan: Plan, variable: str, path: str) -> str:
    if variable in cluster_of(plan).data:
        mount = data_mount(variable, path)
        prepared = any(each.variable == variable for each in plan.preparations)
        return posixpath.join(mount, PREPARED) if prepared else mount
    if posixpath.isabs(path):
        return posixpath.normpath(path)
    return _below(PROJECT, path)


def _below(folder: str, path: str) -> str:
    """Return a path below a folder; `..` cannot leave it."""
    return posixpath.normpath(folder + posixpath.normpath(f"/{path}"))


def _cores(replica: Replica) -> int | None:
    return None if replica.resources.cpus is None else math.ceil(replica.resources.cpus)


def _gpus(replica: Replica) -> tuple[str, ...] | None:
    """Return the GPUs of a replica: a container sees only its own, numbered from 0."""
    gpus = replica.resources.gpus
    return None if gpus is None else tuple(str(number) for number in range(gpus))
