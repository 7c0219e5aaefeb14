"""GPU usage by replica, from what NVML reports by process. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from drumline.record import Record
from drumline.run.usage import GpuUsage


class Device(Record):
    """A GPU as NVML describes it; None is unknown."""

    number: int
    uuid: str
    total_bytes: int
    used_bytes: int
    busy: float | None  # fraction of time
    memory: Mapping[int, int | None] | None = None  # by process
    shares: Mapping[int, float] | None = None  # fraction of its time, by process; 0 if missing


class GpuReplica(Record):
    """The processes of a replica, and its CUDA_VISIBLE_DEVICES."""

    pids: frozenset[int]
    visible: str | None


class _Part(Record):
    """The part of one device that a replica uses."""

    memory_bytes: int | None
    share: float | None
    is_whole: bool = False


def attribute_usage(
    devices: Sequence[Device], replicas: Sequence[GpuReplica], *, pids: Collection[int], is_initial: bool
) -> list[GpuUsage | None]:
    """Return what each replica uses of the devices that it sees; None for a replica that sees none.

    `pids` are all processes of this pid namespace, and `is_initial` is whether it is the machine's initial one. In a
    container NVML may report pids of another namespace, or none. Then the usage of a whole device is returned, and only
    for a replica that has the device alone.
    """
    seen = [visible_devices(devices, each.visible) for each in replicas]
    users: dict[int, int] = {}
    for own in seen:
        for device in own:
            users[device.number] = users.get(device.number, 0) + 1
    usages: list[GpuUsage | None] = []
    for replica, own in zip(replicas, seen, strict=True):
        parts = []
        for device in own:
            part = _own_part(device, replica.pids, pids, is_initial=is_initial)
            parts.append(_or_whole(part, device) if users[device.number] == 1 else part)
        usages.append(_sum(own, parts) if own else None)
    return usages


def sees_any(visible: str | None) -> bool:
    """Return whether a replica with this CUDA_VISIBLE_DEVICES may see a device."""
    return visible is None or visible.strip().startswith((*"0123456789", "GPU-", "MIG-"))


def visible_devices(devices: Sequence[Device], visible: str | None) -> list[Device]:
    """Return the devices that CUDA shows a process: all, or those named before the first that does not exist."""
    if visible is None:
        return list(devices)
    own: list[Device] = []
    for word in visible.split(","):
        found = [device for device in devices if _is_named(device, word.strip())]
        if len(found) != 1:
            break
        own += found
    return own


def _is_named(device: Device, word: str) -> bool:
    return word == str(device.number) or (word.startswith("GPU-") and device.uuid.startswith(word))


def _own_part(device: Device, own_pids: Collection[int], pids: Collection[int], *, is_initial: bool) -> _Part:
    """Return the part of a device that these processes use; unknown if NVML reports no pids of this namespace."""
    if device.memory is None:
        return _Part(None, None)
    own = [memory for pid, memory in device.memory.items() if pid in own_pids]
    known = is_initial or own or (device.memory and all(pid in pids for pid in device.memory))
    if not known:
        return _Part(None, None)
    share = None if device.shares is None else sum(share for pid, share in device.shares.items() if pid in own_pids)
    return _Part(
        None if None in own else sum(memory or 0 for memory in own), None if share is None else min(share, 1.0)
    )


def _or_whole(part: _Part, device: Device) -> _Part:
    if part.memory_bytes is not None and part.share is not None:
        return part
    return _Part(
        device.used_bytes if part.memory_bytes is None else part.memory_bytes,
        device.busy if part.share is None else part.share,
        is_whole=True,
    )


def _sum(own: Sequence[Device], parts: Sequence[_Part]) -> GpuUsage:
    memory = [part.memory_bytes for part in parts if part.memory_bytes is not None]
    shares = [part.share for part in parts if part.share is not None]
    return GpuUsage(
        share=sum(shares) / len(own) if len(shares) == len(own) else None,
        memory_bytes=sum(memory) if len(memory) == len(own) else None,
        memory_total_bytes=sum(device.total_bytes for device in own),
        devices=sum(1 << device.number for device in own if device.number < 64),
        is_whole=any(part.is_whole for part in parts),
    )
