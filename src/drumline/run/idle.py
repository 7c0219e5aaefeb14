"""How quiet a line is: the rule by which it counts as hung.

Progress is a line in a log, a report, bytes that move, or work of a processor. Who waits for others does none of
these, but for the frameworks that wait busily: those only their stacks give away.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from drumline.plan.types import ReplicaId
from drumline.record import Record

# Threads that only wait still wake up now and then: one of torch's a hundred times a second, which takes 1 %.
_WORK_SHARE, _LEAST_WORK_SECONDS = 0.03, 0.1
_MOVED_BYTES = 4096  # to or from a disk
_MOVED_BYTES_PER_SECOND = 1 << 16  # from or to anybody: who waits passes a few to himself


class WorkSample(Record):
    """What one life has done up to a moment, children included."""

    replica: ReplicaId
    attempt: int
    incarnation: int
    cpu_seconds: float
    disk_bytes: int = 0  # read and written
    moved_bytes: int = 0  # the same, of files, pipes and the like, wherever they are
    is_stopped: bool = False
    gpu_share: float = 0.0  # how busy it keeps its GPUs, as they were measured last


class GangSample(Record):
    """Everybody at one moment; `said` is any value that changes when somebody says something."""

    at_seconds: float
    pulses: Mapping[ReplicaId, WorkSample]
    said: object = None


class IdleTimes(Record):
    """How long each has done nothing: the last look at which it had done something, and when anybody last spoke."""

    since: Mapping[ReplicaId, tuple[float, WorkSample]]
    said: object
    said_at: float
    moved_at: float  # when bytes last moved, or somebody came or went

    @property
    def idle_since(self) -> float:
        """Since when nobody has done anything at all."""
        return max((self.said_at, self.moved_at, *(at for at, _ in self.since.values())))

    @property
    def silent_since(self) -> float:
        """Since when there is no sign but that processors are busy."""
        return max(self.said_at, self.moved_at)


class GangActivity(Enum):
    """What a line makes of its time."""

    MOVES = auto()
    BUSY = auto()  # it computes, and nothing comes of it: perhaps it waits busily
    HUNG = auto()


def start_idle_times(look: GangSample) -> IdleTimes:
    """As if everybody had done something just now."""
    since = {name: (look.at_seconds, pulse) for name, pulse in look.pulses.items()}
    return IdleTimes(since, look.said, look.at_seconds, look.at_seconds)


def update_idle_times(before: IdleTimes, look: GangSample) -> IdleTimes:
    """How quiet it is after one more look."""
    at, since, moved_at = look.at_seconds, {}, before.moved_at
    for name, pulse in look.pulses.items():
        known = before.since.get(name)
        if known is None or known[1].incarnation != pulse.incarnation or _moved(known, pulse, at):
            since[name], moved_at = (at, pulse), at
        else:
            since[name] = (at, pulse) if _worked(known, pulse, at) else known
    if before.since.keys() - look.pulses.keys():
        moved_at = at  # somebody has gone
    return IdleTimes(since, look.said, at if look.said != before.said else before.said_at, moved_at)


def classify_activity(quiet: IdleTimes, at_seconds: float, progress_seconds: float) -> GangActivity:
    """Whether it has been quiet for so long."""
    if at_seconds - quiet.idle_since >= progress_seconds:
        return GangActivity.HUNG
    return GangActivity.BUSY if at_seconds - quiet.silent_since >= progress_seconds else GangActivity.MOVES


def _worked(since: tuple[float, WorkSample], now: WorkSample, at: float) -> bool:
    if now.gpu_share >= _WORK_SHARE:  # whoever waits for a kernel need not compute
        return True
    least = max(_LEAST_WORK_SECONDS, _WORK_SHARE * (at - since[0]))
    return abs(now.cpu_seconds - since[1].cpu_seconds) >= least


def _moved(since: tuple[float, WorkSample], now: WorkSample, at: float) -> bool:
    if abs(now.disk_bytes - since[1].disk_bytes) >= _MOVED_BYTES:
        return True
    return abs(now.moved_bytes - since[1].moved_bytes) >= _MOVED_BYTES_PER_SECOND * max(1.0, at - since[0])
