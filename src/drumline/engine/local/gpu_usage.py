"""Whose are the numbers of a GPU: NVML counts by process, replicas are trees of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from drumline.record import Record
from drumline.run.usage import GpuUsage


class Device(Record):
    """A GPU as NVML describes it; None is not known."""

    number: int
    uuid: str
    total_bytes: int
    used_bytes: int
    busy: float | None  # 1.0 is all of the time
    memory: Mapping[int, int | None] | None = None  # by process
    shares: Mapping[int, float] | None = None  # of its time, by process; who is not named had none


class GpuReplica(Record):
    """A replica: its processes, and its CUDA_VISIBLE_DEVICES."""

    pids: frozenset[int]
    visible: str | None


class _Part(Record):
    """What a replica has of one device."""

    memory_bytes: int | None
    share: float | None
    is_whole: bool = False


def attribute_usage(
    devices: Sequence[Device], seers: Sequence[GpuReplica], *, everyone: Collection[int], outermost: bool
) -> list[GpuUsage | None]:
    """Say what each of these uses of the devices that it can see; None for who sees none.

    `everyone` are the processes that exist here, and `outermost` says that their numbers are the machine's own. In a
    container they need not be: NVML may count by other numbers, or not at all. Then a device is told of as a whole,
    and only of who has it alone.
    """
    seen = [visible_devices(devices, seer.visible) for seer in seers]
    crowd: dict[int, int] = {}
    for own in seen:
        for device in own:
            crowd[device.number] = crowd.get(device.number, 0) + 1
    usages: list[GpuUsage | None] = []
    for seer, own in zip(seers, seen, strict=True):
        parts = []
        for device in own:
            part = _own_part(device, seer.pids, everyone, outermost=outermost)
            parts.append(_or_whole(part, device) if crowd[device.number] == 1 else part)
        usages.append(_sum(own, parts) if own else None)
    return usages


def sees_any(visible: str | None) -> bool:
    """Whether a replica with this CUDA_VISIBLE_DEVICES may see a device at all."""
    return visible is None or visible.strip().startswith((*"0123456789", "GPU-", "MIG-"))


def visible_devices(devices: Sequence[Device], visible: str | None) -> list[Device]:
    """The devices that CUDA lets a process see: all, or those named up to the first that is not there."""
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


def _own_part(device: Device, pids: Collection[int], everyone: Collection[int], *, outermost: bool) -> _Part:
    """What these processes have of a device, as far as NVML counts by process, and by numbers that we know."""
    if device.memory is None:
        return _Part(None, None)
    own = [memory for pid, memory in device.memory.items() if pid in pids]
    known = outermost or own or (device.memory and all(pid in everyone for pid in device.memory))
    if not known:
        return _Part(None, None)
    share = None if device.shares is None else sum(share for pid, share in device.shares.items() if pid in pids)
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
