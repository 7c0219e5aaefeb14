"""Where replicas are reached in a cluster, and their folders in a pod. Pure: nobody is asked."""

from __future__ import annotations

import math
import posixpath

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.plan_options import cluster_of
from drumline.errors import InputError
from drumline.plan.types import Place, Placement, Plan, Replica, ReplicaId

PORT = 2222

PARTS = "/drumline/parts"  # what drumline carried, as it came
PROJECT = "/drumline/project"
RUNTIME = "/drumline/runtime"
OUTPUT = "/drumline/output"
DATA = "/drumline/data"
PREPARED = "prepared"  # the folder on a volume that a preparation makes
NAMES_NOT_AWAITED = (
    "begun"  # what the run's own object says, and a file among the parts then: nobody's name is waited for any more
)


def place(plan: Plan, *, attempt: int = 0) -> Placement:
    """Say where each replica will be reached: by a name that it has before it has an address."""
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
            # The operator of a TFJob writes it, for whoever is not alone.
            written=("TF_CONFIG",) if plan.engine == "tfjob" else (),
        )
        for replica in plan.replicas
    }


def place_helper(plan: Plan) -> Place:
    """The place of somebody whom nobody has to reach: the folders alone."""
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
    """Where commands run: in the project that was carried, or wherever the image says, which is empty."""
    if posixpath.isabs(plan.workdir):
        return posixpath.normpath(plan.workdir)
    if cluster_of(plan).code:
        return _below(PROJECT, plan.workdir)
    if posixpath.normpath(plan.workdir) == ".":
        return ""
    raise InputError(
        f"workdir `{plan.workdir}` is in the project's folder, which is not carried into the pods",
        hint=f"leave out `engine.{plan.engine}.code: false`, or give a path in the image",
    )


def output_mount(plan: Plan) -> str:
    """Where the output volume is mounted: where the spec's own path begins, else where drumline has it."""
    at = cluster_of(plan).output_at
    return OUTPUT if at is None or posixpath.normpath(at) == "/" else posixpath.normpath(at)


def data_mount(variable: str, path: str) -> str:
    """Where a data volume is mounted."""
    name = variable.removeprefix("DATA_DIR").removeprefix("_").lower() or "data"
    return posixpath.normpath(path) if posixpath.isabs(path) else posixpath.join(DATA, name)


def _require_image(plan: Plan) -> None:
    """Refuse a plan whose pods would have no image."""
    image = cluster_of(plan).image
    if image.name is None and not image.is_built:
        raise InputError(
            f"`engine.{plan.engine}.image` is missing: which image do the pods run?",
            hint=f"add it: `engine: {{{plan.engine}: {{image: …}}}}`",
        )


def _require_volumes(plan: Plan) -> None:
    """Refuse data that one pod would make and no other could see."""
    for each in plan.preparations:
        if each.variable not in cluster_of(plan).data:
            raise InputError(
                f"`prepare` makes `{each.path}` in a pod of its own, and no other pod would see it",
                hint="give the data a `volume`, such as `volume: {size: 10GiB, access: ReadWriteMany}`",
            )


def awaits_names(plan: Plan) -> bool:
    """Whether replicas wait until they know each other's names: not where no framework is told of any address."""
    return plan.framework != "plain" and len(plan.replicas) > 1


def hosts(plan: Plan, attempt: int) -> dict[ReplicaId, str]:
    """The names by which replicas reach each other: a pod's own in the domain of its Service, as its maker gives it."""
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
    """All of a volume that is the run's own; a folder of its own on one that others use, too."""
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
    """A path below a folder, which no `..` leaves."""
    return posixpath.normpath(folder + posixpath.normpath(f"/{path}"))


def _cores(replica: Replica) -> int | None:
    return None if replica.resources.cpus is None else math.ceil(replica.resources.cpus)


def _gpus(replica: Replica) -> tuple[str, ...] | None:
    """A container sees its own GPUs alone, and counts them from 0."""
    gpus = replica.resources.gpus
    return None if gpus is None else tuple(str(number) for number in range(gpus))
