"""The CPU time, memory and GPUs that replicas use: each with its whole process tree, shared pages counted once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from drumline.engine.local.activity import TICKS, cpu_seconds, find_trees
from drumline.engine.local.capacity import find_memory
from drumline.engine.local.gpu_poller import GpuPoller
from drumline.engine.local.gpu_usage import GpuReplica, attribute_usage, sees_any
from drumline.engine.local.nvml import has_gpus
from drumline.engine.local.proc import Stat, is_initial_pid_namespace, proportional_bytes, read_stats, variable_of
from drumline.record import Record
from drumline.run.incarnation import Incarnation
from drumline.run.usage import GpuUsage, Usage
from drumline.runtime.keeper import now

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_PAGE = os.sysconf("SC_PAGESIZE")

# The kernel counts shared pages by walking through all of a process's memory, which takes milliseconds for each
# gigabyte. While the run is not watched this is done rarely; it never takes more than a small share of the time.
EXACT_SECONDS = 60.0
EXACT_PAUSES = 20
EXACT_PAUSES_UNWATCHED = 200


class _SharedMemory(Record):
    """How a process tree shares memory: the ratio below, when it was measured, and how long the measurement took."""

    ratio: float = 1.0  # proportional memory divided by the sum of resident memory
    processes: int = 0
    at: float = -1e9
    cost_seconds: float = 0.0


class UsageSampler:
    """Measures incarnations; remembers how each shares its memory, and owns the GPU poller."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._sharing: dict[Incarnation, _SharedMemory] = {}
        self.gpu_shares: dict[Incarnation, float] = {}  # of the last measurement; unknown ones are left out
        self._machine_bytes = find_memory()
        self._is_initial = is_initial_pid_namespace()
        self._loop = loop
        self._gpu_poller: GpuPoller | None = None

    def measure(self, keepers: Mapping[Incarnation, int], *, watched: bool) -> Iterator[Usage]:
        """Measure incarnations by their keepers; leave out those without a running keeper."""
        self._sharing = {which: known for which, known in self._sharing.items() if which in keepers}
        at = now()
        stats = read_stats()
        below = find_trees(keepers, stats)
        gpus = self._gpus(below, stats)
        self.gpu_shares = {which: gpu.share for which, gpu in gpus.items() if gpu and gpu.share is not None}
        for which, tree in below.items():
            yield Usage(
                which.replica,
                which.attempt,
                which.incarnation,
                at_seconds=at,
                started_seconds=tree[0].start_ticks / TICKS,
                cpu_seconds=cpu_seconds(stats[keepers[which]], tree),
                memory_bytes=self._memory(which, tree, watched=watched),
                machine_bytes=self._machine_bytes,
                gpu=gpus.get(which),
            )

    def _memory(self, which: Incarnation, tree: list[Stat], *, watched: bool) -> int:
        """Return the memory of a tree; between two exact measurements, the resident memory times the last ratio."""
        resident = sum(stat.resident_pages for stat in tree) * _PAGE
        known, began = self._sharing.get(which, _SharedMemory()), now()
        age = began - known.at
        pause = known.cost_seconds * (EXACT_PAUSES if watched else EXACT_PAUSES_UNWATCHED)
        changed = known.processes != len(tree)
        if age >= pause and (watched or changed or age >= EXACT_SECONDS):
            exact = sum(_exact_bytes(stat) for stat in tree)
            ratio = exact / resident if resident else 1.0
            known = self._sharing[which] = _SharedMemory(ratio, len(tree), began, now() - began)
        return round(resident * known.ratio)

    def _gpus(self, below: dict[Incarnation, list[Stat]], stats: dict[int, Stat]) -> dict[Incarnation, GpuUsage | None]:
        if not has_gpus():
            return {}
        replicas = [
            GpuReplica(frozenset(stat.pid for stat in tree), variable_of(tree[0].pid, "CUDA_VISIBLE_DEVICES"))
            for tree in below.values()
        ]
        if self._gpu_poller is None:
            if not any(sees_any(each.visible) for each in replicas):
                return {}
            self._gpu_poller = GpuPoller(self._loop)
        usages = attribute_usage(self._gpu_poller.poll(), replicas, pids=stats.keys(), is_initial=self._is_initial)
        return dict(zip(below, usages, strict=True))


def _exact_bytes(stat: Stat) -> int:
    if not stat.resident_pages:
        return 0
    exact = proportional_bytes(stat.pid)
    return stat.resident_pages * _PAGE if exact is None else exact
