"""What the lives on this machine have done so far, as the kernel counts it: work and bytes, and who is stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

from drumline.engine.incarnation import Incarnation
from drumline.engine.local.proc import PROC, Stat, read_stats, trees
from drumline.run.quiet import Pulse

_TICKS = os.sysconf("SC_CLK_TCK")


def read_pulses(keepers: Mapping[Incarnation, int], gpu_shares: Mapping[Incarnation, float]) -> Iterator[Pulse]:
    """Look at everybody below these keepers once; how busy GPUs are was measured before."""
    stats = read_stats()
    for life, tree in find_trees(keepers, stats).items():
        ticks = stats[keepers[life]].reaped_ticks + sum(stat.cpu_ticks + stat.reaped_ticks for stat in tree)
        counts = [_read_io(stat.pid) for stat in tree]
        yield Pulse(
            life.replica,
            life.attempt,
            life.incarnation,
            cpu_seconds=ticks / _TICKS,
            disk_bytes=sum(disk for disk, _ in counts),
            moved_bytes=sum(moved for _, moved in counts),
            gpu_share=gpu_shares.get(life, 0.0),
            is_stopped=any(is_stopped(stat.pid) for stat in tree),
        )


def find_trees(keepers: Mapping[Incarnation, int], stats: Mapping[int, Stat]) -> dict[Incarnation, list[Stat]]:
    """Everybody of each life whose keeper and process are there, the replica's own process first."""
    found = trees(keepers.values(), stats)
    return {life: found[keeper] for life, keeper in keepers.items() if keeper in stats and found[keeper]}


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped this process: it does nothing until it is told to go on."""
    with suppress(OSError, IndexError), open(f"{PROC}/{pid}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b") ")[2][:1] == b"T"
    return False


def _read_io(pid: int) -> tuple[int, int]:
    """Bytes from and to disks, and bytes at all; none of whom we may not ask."""
    with suppress(OSError, ValueError), open(f"{PROC}/{pid}/io", "rb") as file:  # noqa: PTH123
        counts = {key: int(value) for key, _, value in (line.partition(b": ") for line in file.read().splitlines())}
        return counts[b"read_bytes"] + counts[b"write_bytes"], counts[b"rchar"] + counts[b"wchar"]
    return 0, 0
