"""What the replicas on this machine have done so far, as the kernel counts it: CPU time and bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from drumline.engine.local.proc import PROC, Stat, read_state, read_stats, trees
from drumline.run.idle import WorkSample
from drumline.run.incarnation import Incarnation

TICKS = os.sysconf("SC_CLK_TCK")


def read_work_samples(
    keepers: Mapping[Incarnation, int], gpu_shares: Mapping[Incarnation, float]
) -> Iterator[WorkSample]:
    """Look once at all processes below these keepers; how busy GPUs are was measured before."""
    stats = read_stats()
    for life, tree in find_trees(keepers, stats).items():
        counts = [_read_io(stat.pid) for stat in tree]
        yield WorkSample(
            life.replica,
            life.attempt,
            life.incarnation,
            cpu_seconds=cpu_seconds(stats[keepers[life]], tree),
            disk_bytes=sum(disk for disk, _ in counts),
            moved_bytes=sum(moved for _, moved in counts),
            gpu_share=gpu_shares.get(life, 0.0),
            is_stopped=any(is_stopped(stat.pid) for stat in tree),
        )


def find_trees(keepers: Mapping[Incarnation, int], stats: Mapping[int, Stat]) -> dict[Incarnation, list[Stat]]:
    """Return all processes of each replica whose keeper and process are there, the replica's own first."""
    found = trees(keepers.values(), stats)
    return {life: found[keeper] for life, keeper in keepers.items() if keeper in stats and found[keeper]}


def cpu_seconds(keeper: Stat, tree: Iterable[Stat]) -> float:
    """Return what the processes below a keeper have computed, also those that have ended.

    These were waited for by their parent; orphans, and at last the replica itself, by the keeper.
    """
    return (keeper.reaped_ticks + sum(stat.cpu_ticks + stat.reaped_ticks for stat in tree)) / TICKS


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped: it does nothing until it is continued."""
    return read_state(pid) == b"T"


def _read_io(pid: int) -> tuple[int, int]:
    """Return the bytes from and to disks, and all bytes; none of a process that may not be read."""
    with suppress(OSError, ValueError), open(f"{PROC}/{pid}/io", "rb") as file:  # noqa: PTH123
        counts = {key: int(value) for key, _, value in (line.partition(b": ") for line in file.read().splitlines())}
        return counts[b"read_bytes"] + counts[b"write_bytes"], counts[b"rchar"] + counts[b"wchar"]
    return 0, 0
