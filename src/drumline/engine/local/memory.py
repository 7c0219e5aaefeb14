"""How much memory there is for us: the machine's, or what the group that we are in may have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def memory_bytes(root: Path = Path("/")) -> int | None:
    """The least of the machine's memory and of every limit above us; None if nobody says."""
    return min((*_machine(root), *_limits(root)), default=None)


def _machine(root: Path) -> Iterator[int]:
    with suppress(OSError, ValueError, IndexError):
        yield int((root / "proc/meminfo").read_text().partition("MemTotal:")[2].split()[0]) * 1024


def _limits(root: Path) -> Iterator[int]:
    """The limits of our control group and of those around it, in either version."""
    groups = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            top, name = groups / "memory", "memory.limit_in_bytes"
        elif not controllers:
            top, name = groups, "memory.max"
        else:
            continue
        folder = Path(os.path.normpath(f"{top}/{path}"))
        for each in (folder, *folder.parents):
            if not each.is_relative_to(top):
                break
            with suppress(OSError, ValueError):  # `max` is no limit
                yield int((each / name).read_text())
