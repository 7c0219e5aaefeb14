"""The volumes of a run: claims, which outlive it, and their mounts."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.paths import Object, new_object
from drumline.engine.kubernetes.place import (
    NAMES_NOT_AWAITED,
    PARTS,
    PROJECT,
    RUNTIME,
    awaits_names,
    data_mount,
    output_mount,
    place_helper,
)
from drumline.engine.kubernetes.plan_options import Volume, cluster_of
from drumline.engine.kubernetes.quantity import quantity
from drumline.plan.types import Plan, ReplicaId
from drumline.record import Record

_Volume = tuple[str, Object, list[Object]]  # name, source, mounts


class Mounts(Record):
    """The volumes of a pod and the mounts of its containers."""

    volumes: tuple[Object, ...]
    mounts: tuple[Object, ...]


def claims(plan: Plan) -> Iterator[Object]:
    """Return the claims that are made for the run; they have no owner, so that they stay when it is removed."""
    return (_claim(plan, name, volume) for name, volume in names.claims(plan).items() if not volume.claim)


def mounts(plan: Plan, replica: ReplicaId, code: int) -> Mounts:
    """Return the mounts of a replica's pod: output, data, /dev/shm, and this many ConfigMaps of the project."""
    carried = _carried(plan, code, *_names_not_awaited(plan))
    return _mounts([*_output(plan, replica), *_data(plan), *_shm(plan), *carried])


def mounts_of_preparation(plan: Plan, variable: str, code: int) -> Mounts:
    """Return the mounts of the pod that makes the data of a variable; the volume of the data is writable."""
    path = next(data.path for data in plan.data if data.variable == variable)
    source = {"persistentVolumeClaim": {"claimName": names.data_claim(plan, variable)}}
    return _mounts([("data", source, [{"mountPath": data_mount(variable, path)}]), *_carried(plan, code)])


def _mounts(pairs: list[_Volume]) -> Mounts:
    return Mounts(
        tuple({"name": name, **source} for name, source, _ in pairs),
        tuple({"name": name, **mount} for name, _, several in pairs for mount in several),
    )


def _has_output(plan: Plan, replica: ReplicaId) -> bool:
    """Return whether this replica mounts the output volume: all if it is shared, else only the chief."""
    volume = cluster_of(plan).output
    return volume is not None and (volume.is_shared or replica == plan.chief)


def _output(plan: Plan, replica: ReplicaId) -> Iterator[_Volume]:
    source = {"persistentVolumeClaim": {"claimName": names.output_claim(plan)}}
    where = output_mount(plan)
    several: list[Object] = [{"mountPath": where}]
    checkpoint = place_helper(plan).checkpoint_dir
    if posixpath.commonpath([where, checkpoint]) != where:
        several.append({"mountPath": checkpoint, "subPath": "checkpoint"})
    yield "output", source if _has_output(plan, replica) else {"emptyDir": {}}, several


def _data(plan: Plan) -> Iterator[_Volume]:
    cluster = cluster_of(plan)
    for number, data in enumerate(plan.data):
        if data.variable in cluster.data:
            # Read-only, so that the kubelet does not change the group of its files.
            claim = {"claimName": names.data_claim(plan, data.variable), "readOnly": True}
            mount = {"mountPath": data_mount(data.variable, data.path), "readOnly": True}
            yield f"data-{number}", {"persistentVolumeClaim": claim}, [mount]


def _shm(plan: Plan) -> Iterator[_Volume]:
    size = cluster_of(plan).shm_bytes
    if size is not None:
        yield "shm", {"emptyDir": {"medium": "Memory", "sizeLimit": quantity(size)}}, [{"mountPath": "/dev/shm"}]


def _names_not_awaited(plan: Plan) -> Iterator[Object]:
    """Yield the source of a file that appears when a replica has ended: the replica's name no longer resolves then."""
    if awaits_names(plan):
        items = [{"key": NAMES_NOT_AWAITED, "path": NAMES_NOT_AWAITED}]
        yield {"configMap": {"name": names.base(plan), "items": items, "optional": True}}


def _carried(plan: Plan, code: int, *others: Object) -> Iterator[_Volume]:
    if code:
        parts = [{"configMap": {"name": names.code(plan, number)}} for number in range(code)]
        yield "parts", {"projected": {"sources": [*parts, *others]}}, [{"mountPath": PARTS, "readOnly": True}]
        several = [{"mountPath": PROJECT, "subPath": "project"}, {"mountPath": RUNTIME, "subPath": "runtime"}]
        yield "code", {"emptyDir": {}}, several


def _claim(plan: Plan, name: str, volume: Volume) -> Object:
    spec: Object = {
        "accessModes": [volume.access or "ReadWriteOnce"],
        "resources": {"requests": {"storage": quantity(volume.size_bytes or 0)}},
    }
    if volume.storage_class is not None:
        spec["storageClassName"] = volume.storage_class
    return new_object("PersistentVolumeClaim", names.metadata(plan, name), spec=spec)
