"""What a life of a replica uses: processor, memory and GPUs, as its engine measured it."""

from __future__ import annotations

from drumline.plan.types import ReplicaId
from drumline.record import Record


class GpuUsage(Record):
    """What it uses of the GPUs that it can see; None is not known."""

    share: float | None  # how busy it keeps them: 1.0 is all of the time, the mean over its devices
    memory_bytes: int | None
    memory_total_bytes: int
    devices: int  # which ones: a bit for each
    is_whole: bool = False  # said of whole devices, since nobody can tell what is its own


class Usage(Record):
    """One life up to a moment; seconds are those of the clock that never goes back, None is not known."""

    replica: ReplicaId
    attempt: int
    incarnation: int
    at_seconds: float
    started_seconds: float
    cpu_seconds: float  # since it started, children that have ended included
    memory_bytes: int | None = None  # of the whole tree, shared pages once
    machine_bytes: int | None = None  # the most that any replica could have where it runs
    gpu: GpuUsage | None = None
