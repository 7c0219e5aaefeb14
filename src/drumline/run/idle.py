"""How long replicas have been idle: the rule by which a gang counts as hung.

Progress is a line in a log, a report, transferred bytes, or processor time. A replica that waits for others makes no
progress. Some frameworks use the processor while they wait; only stacks show that their replicas wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from drumline.plan.types import ReplicaId
from drumline.record import Record

# A replica works if it uses this share of a processor. Waiting threads use less: torch wakes one a hundred times a
# second, which takes 1 %.
_WORK_SHARE, _LEAST_WORK_SECONDS = 0.03, 0.1
_MOVED_BYTES = 4096  # to or from a disk
_MOVED_BYTES_PER_SECOND = 1 << 16  # in all: a waiting process transfers a few bytes to itself


class WorkSample(Record):
    """What one incarnation has done so far, including its children."""

    replica: ReplicaId
    attempt: int
    incarnation: int
    cpu_seconds: float
    disk_bytes: int = 0  # read and written
    moved_bytes: int = 0  # read and written, including pipes, sockets and files that are not on a disk
    is_stopped: bool = False
    gpu_share: float = 0.0  # load of its GPUs at the last measurement


class GangSample(Record):
    """The work of all replicas until one moment; `said` is any value that changes with each output or report."""

    at_seconds: float
    replicas: Mapping[ReplicaId, WorkSample]
    said: object = None


class IdleTimes(Record):
    """When each replica last worked, and when any replica last made other progress."""

    since: Mapping[ReplicaId, tuple[float, WorkSample]]  # when the replica last worked, and the sample of that time
    said: object  # of the last sample
    said_at: float  # when a replica last wrote output or a report
    moved_at: float  # when bytes were last transferred, or a replica started or ended

    @property
    def idle_since(self) -> float:
        """Return the time since which no replica has made any progress."""
        return max((self.said_at, self.moved_at, *(at for at, _ in self.since.values())))

    @property
    def silent_since(self) -> float:
        """Return the time since which processor time is the only progress."""
        return max(self.said_at, self.moved_at)


class GangActivity(Enum):
    """What a gang does."""

    MOVES = auto()  # it makes progress
    BUSY = auto()  # it uses processors without other progress: it computes, or its framework uses them to wait
    HUNG = auto()  # it makes no progress


def start_idle_times(sample: GangSample) -> IdleTimes:
    """Return the idle times after the first sample: each replica counts as working at its time."""
    since = {name: (sample.at_seconds, work) for name, work in sample.replicas.items()}
    return IdleTimes(since, sample.said, sample.at_seconds, sample.at_seconds)


def update_idle_times(before: IdleTimes, sample: GangSample) -> IdleTimes:
    """Return the idle times after one more sample."""
    at, since, moved_at = sample.at_seconds, {}, before.moved_at
    for name, work in sample.replicas.items():
        known = before.since.get(name)
        if known is None or known[1].incarnation != work.incarnation or _moved(known, work, at):
            since[name], moved_at = (at, work), at
        else:
            since[name] = (at, work) if _worked(known, work, at) else known
    if before.since.keys() - sample.replicas.keys():
        moved_at = at  # a replica has ended
    return IdleTimes(since, sample.said, at if sample.said != before.said else before.said_at, moved_at)


def classify_activity(idle: IdleTimes, at_seconds: float, progress_seconds: float) -> GangActivity:
    """Return whether the gang moves, is only busy, or has been idle for `progress_seconds`."""
    if at_seconds - idle.idle_since >= progress_seconds:
        return GangActivity.HUNG
    return GangActivity.BUSY if at_seconds - idle.silent_since >= progress_seconds else GangActivity.MOVES


def _worked(since: tuple[float, WorkSample], now: WorkSample, at: float) -> bool:
    if now.gpu_share >= _WORK_SHARE:  # a process that waits for a GPU need not use a processor
        return True
    least = max(_LEAST_WORK_SECONDS, _WORK_SHARE * (at - since[0]))
    return abs(now.cpu_seconds - since[1].cpu_seconds) >= least


def _moved(since: tuple[float, WorkSample], now: WorkSample, at: float) -> bool:
    if abs(now.disk_bytes - since[1].disk_bytes) >= _MOVED_BYTES:
        return True
    return abs(now.moved_bytes - since[1].moved_bytes) >= _MOVED_BYTES_PER_SECOND * max(1.0, at - since[0])
