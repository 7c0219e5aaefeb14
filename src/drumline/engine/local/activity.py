"""The CPU time and bytes of replicas so far, as the kernel counts them."""

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
    """Yield a sample for each replica, over all processes below its keeper; `gpu_shares` are the last known ones."""
    stats = read_stats()
    for which, tree in find_trees(keepers, stats).items():
        counts = [_read_io(stat.pid) for stat in tree]
        yield WorkSample(
            which.replica,
            which.attempt,
            which.incarnation,
            cpu_seconds=cpu_seconds(stats[keepers[which]], tree),
            disk_bytes=sum(disk for disk, _ in counts),
            moved_bytes=sum(moved for _, moved in counts),
            gpu_share=gpu_shares.get(which, 0.0),
            is_stopped=any(is_stopped(stat.pid) for stat in tree),
        )


def find_trees(keepers: Mapping[Incarnation, int], stats: Mapping[int, Stat]) -> dict[Incarnation, list[Stat]]:
    """Return the processes of each running replica, its main process first; leave out replicas without a keeper."""
    found = trees(keepers.values(), stats)
    return {which: found[keeper] for which, keeper in keepers.items() if keeper in stats and found[keeper]}


def cpu_seconds(keeper: Stat, tree: Iterable[Stat]) -> float:
    """Return the CPU time of all processes below a keeper, including those that have ended.

    The kernel adds the time of an ended process to its parent when the parent reaps it; the keeper reaps orphans.
    """
    return (keeper.reaped_ticks + sum(stat.cpu_ticks + stat.reaped_ticks for stat in tree)) / TICKS


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped (SIGSTOP)."""
    return read_state(pid) == b"T"


def _read_io(pid: int) -> tuple[int, int]:
    """Return the bytes that a process moved from and to disks, and by all reads and writes; zeros if unreadable."""
    with suppress(OSError, ValueError), open(f"{PROC}/{pid}/io", "rb") as file:  # noqa: PTH123
        counts = {key: int(value) for key, _, value in (line.partition(b": ") for line in file.read().splitlines())}
        return counts[b"read_bytes"] + counts[b"write_bytes"], counts[b"rchar"] + counts[b"wchar"]
    return 0, 0
