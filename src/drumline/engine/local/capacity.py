"""The CPUs, memory and GPUs of this machine that this user may use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from drumline.engine.protocol import Capacity

GPUS = "DRUMLINE_GPUS"
VISIBLE = "CUDA_VISIBLE_DEVICES"

_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+")


def find_capacity(cores: int, environ: Mapping[str, str], *, root: Path = Path("/")) -> Capacity:
    """Return the capacity of this machine; `cores` are the CPUs of the process's affinity, before any quota."""
    return Capacity(_count_cpus(cores, root), find_memory(root), find_gpus(environ, root=root))


def find_gpus(environ: Mapping[str, str], *, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the GPUs that may be used, each as CUDA_VISIBLE_DEVICES names it.

    DRUMLINE_GPUS lists the GPUs of the machine; without it the device nodes of NVIDIA's driver are counted, from 0.
    """
    known = environ[GPUS].replace(" ", "").split(",") if GPUS in environ else _count_nodes(root)
    known = list(dict.fromkeys(filter(None, known)))
    if not known or VISIBLE not in environ:
        return tuple(known)
    visible: dict[str, None] = {}
    for word in environ[VISIBLE].replace(" ", "").split(","):
        if word not in known and not _UUID.fullmatch(word):
            break  # CUDA ignores the first unknown device and all that follow, so `-1` hides all
        visible[word] = None
    return tuple(visible)


def _count_nodes(root: Path) -> list[str]:
    try:
        nodes = [name for name in os.listdir(root / "dev") if re.fullmatch(r"nvidia[0-9]+", name)]  # noqa: PTH208
    except OSError:
        return []
    return [str(number) for number in range(len(nodes))]


def _count_cpus(cores: int, root: Path) -> float:
    quotas = [
        int(quota) / int(period) for quota, period in _read_quotas(root) if quota.isdecimal() and period.isdecimal()
    ]
    return min([float(cores), *(quota for quota in quotas if quota > 0)])


def _read_quotas(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the CPU quota and period of each cgroup in microseconds: version 2 has one file, version 1 two."""
    for folder in _groups("cpu", root):
        if len(words := _read(folder / "cpu.max").split()) == 2:
            yield words[0], words[1]
        yield _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")


def find_memory(root: Path = Path("/")) -> int:
    """Return the machine's memory in bytes, or the limit of a cgroup if that is less."""
    total = re.search(r"^MemTotal: *([0-9]+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    amounts = [int(total[1]) * 1024 if total else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for folder in _groups("memory", root):
        limits = (_read(folder / "memory.max"), _read(folder / "memory.limit_in_bytes"))
        amounts += [int(limit) for limit in limits if limit.isdecimal()]
    return min(amounts)


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of this process's cgroup and of those above it, if visible; each may limit this process."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        if path.startswith("/.."):  # not visible in this namespace
            continue
        for mount in (f"sys/fs/cgroup/{controllers}", f"sys/fs/cgroup/{controller}") if controllers else _UNIFIED:
            folder = Path(path.lstrip("/"))
            for each in (folder, *folder.parents):
                yield root / mount / each


_UNIFIED = ("sys/fs/cgroup", "sys/fs/cgroup/unified")


def _read(path: Path) -> str:
    with suppress(OSError, ValueError):
        return path.read_text().strip()
    return ""
