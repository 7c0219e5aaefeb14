"""What the replicas on this machine use: each with its whole tree, shared pages counted once."""

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

# Shared pages are only told apart by a walk through all of a process's memory, which takes milliseconds for each
# gigabyte. So it is done seldom while nobody watches, and takes a small share of the time at most.
EXACT_SECONDS = 60.0
EXACT_PAUSES = 20
EXACT_PAUSES_UNWATCHED = 200


class _Sharing(Record):
    """How the memory of a tree was found to be shared, when, and how long that took."""

    ratio: float = 1.0  # of what it has to the sum of what its processes see
    processes: int = 0
    at: float = -1e9
    cost_seconds: float = 0.0


class UsageSampler:
    """Measures lives; remembers how each shares its memory, and owns whoever looks at the GPUs."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._sharing: dict[Incarnation, _Sharing] = {}
        self.gpu_shares: dict[Incarnation, float] = {}  # as they were measured last, where they are known
        self._machine_bytes = find_memory()
        self._outermost = is_initial_pid_namespace()
        self._loop = loop
        self._gpu_poller: GpuPoller | None = None

    def measure(self, keepers: Mapping[Incarnation, int], *, watched: bool) -> Iterator[Usage]:
        """Measure lives by their keepers; whose keeper is gone is left out."""
        self._sharing = {life: known for life, known in self._sharing.items() if life in keepers}
        at = now()
        stats = read_stats()
        below = find_trees(keepers, stats)
        gpus = self._gpus(below, stats)
        self.gpu_shares = {life: gpu.share for life, gpu in gpus.items() if gpu and gpu.share is not None}
        for life, tree in below.items():
            yield Usage(
                life.replica,
                life.attempt,
                life.incarnation,
                at_seconds=at,
                started_seconds=tree[0].start_ticks / TICKS,
                cpu_seconds=cpu_seconds(stats[keepers[life]], tree),
                memory_bytes=self._memory(life, tree, watched=watched),
                machine_bytes=self._machine_bytes,
                gpu=gpus.get(life),
            )

    def _memory(self, life: Incarnation, tree: list[Stat], *, watched: bool) -> int:
        """What a tree has; between two exact looks, what its processes see, shared as it was found to be."""
        resident = sum(stat.resident_pages for stat in tree) * _PAGE
        known, began = self._sharing.get(life, _Sharing()), now()
        age = began - known.at
        pause = known.cost_seconds * (EXACT_PAUSES if watched else EXACT_PAUSES_UNWATCHED)
        changed = known.processes != len(tree)
        if age >= pause and (watched or changed or age >= EXACT_SECONDS):
            exact = sum(_exact_bytes(stat) for stat in tree)
            ratio = exact / resident if resident else 1.0
            known = self._sharing[life] = _Sharing(ratio, len(tree), began, now() - began)
        return round(resident * known.ratio)

    def _gpus(self, below: dict[Incarnation, list[Stat]], stats: dict[int, Stat]) -> dict[Incarnation, GpuUsage | None]:
        if not has_gpus():
            return {}
        seers = [
            GpuReplica(frozenset(stat.pid for stat in tree), variable_of(tree[0].pid, "CUDA_VISIBLE_DEVICES"))
            for tree in below.values()
        ]
        if self._gpu_poller is None:
            if not any(sees_any(seer.visible) for seer in seers):
                return {}
            self._gpu_poller = GpuPoller(self._loop)
        usages = attribute_usage(self._gpu_poller.poll(), seers, everyone=stats.keys(), outermost=self._outermost)
        return dict(zip(below, usages, strict=True))


def _exact_bytes(stat: Stat) -> int:
    if not stat.resident_pages:
        return 0
    exact = proportional_bytes(stat.pid)
    return stat.resident_pages * _PAGE if exact is None else exact
