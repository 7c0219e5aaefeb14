"""The processor time, memory and GPUs that an incarnation uses, as measured by its engine."""

from __future__ import annotations

from drumline.plan.types import ReplicaId
from drumline.record import Record


class GpuUsage(Record):
    """The use of the GPUs that an incarnation can see; a field is None if it is not known."""

    share: float | None  # load, mean over the devices; 1.0 is fully busy
    memory_bytes: int | None
    memory_total_bytes: int
    devices: int  # a bit mask of the devices
    is_whole: bool = False  # the figures are of whole devices, since the part of the incarnation is not known


class Usage(Record):
    """The resources that one incarnation has used so far; times by the monotonic clock, None if not known."""

    replica: ReplicaId
    attempt: int
    incarnation: int
    at_seconds: float
    started_seconds: float
    cpu_seconds: float  # since it started, including children that have ended
    memory_bytes: int | None = None  # of the whole process tree; shared pages are counted once
    machine_bytes: int | None = None  # the memory of the machine, or the limit of the incarnation
    gpu: GpuUsage | None = None
