"""What an incarnation uses: processor, memory and GPUs, as its engine measured it."""

from __future__ import annotations

from drumline.plan.types import ReplicaId
from drumline.record import Record


class GpuUsage(Record):
    """What it uses of the GPUs that it can see; None is not known."""

    share: float | None  # load, mean over its devices; 1.0 is fully busy
    memory_bytes: int | None
    memory_total_bytes: int
    devices: int  # a bit for each device
    is_whole: bool = False  # figures of whole devices, since its own part is not known


class Usage(Record):
    """What one incarnation used so far; seconds by the monotonic clock, None is not known."""

    replica: ReplicaId
    attempt: int
    incarnation: int
    at_seconds: float
    started_seconds: float
    cpu_seconds: float  # since it started, including children that have ended
    memory_bytes: int | None = None  # of the whole tree, shared pages once
    machine_bytes: int | None = None  # the memory of its machine or its limit
    gpu: GpuUsage | None = None
