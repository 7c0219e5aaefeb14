"""The resources of a machine, found in the files of simulated machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.engine.local.capacity import find_capacity, find_gpus

GIB = 1 << 30


def machine(root: Path, files: dict[str, str]) -> Path:
    """Return the root folder of a machine of 8 GiB with these files."""
    for name, text in {"proc/meminfo": "MemTotal:        8388608 kB\nMemFree: 1 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "cpus", "memory"),
    [
        ({}, 4.0, 8 * GIB),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 4.0, 8 * GIB),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5, 8 * GIB),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "900000 100000"}, 4.0, 8 * GIB),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": f"{2 * GIB}\n"}, 4.0, 2 * GIB),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 4.0, 8 * GIB),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/a\n3:memory:/docker/not-seen-from-inside\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
            },
            0.5,
            GIB,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/\n3:memory:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            4.0,
            8 * GIB,
        ),
    ],
)
def test_cores_and_memory_are_those_of_the_machine_within_the_limits_of_its_cgroup(
    tmp_path: Path, files: dict[str, str], cpus: float, memory: int
) -> None:
    found = find_capacity(4, {}, root=machine(tmp_path, files))
    assert (found.cpus, found.memory_bytes, found.gpus) == (cpus, memory, ())


def test_this_machine_has_cores_and_memory() -> None:
    found = find_capacity(2, {})
    assert 0 < found.cpus <= 2
    assert found.memory_bytes > 1 << 20


@pytest.mark.parametrize(
    ("nodes", "environ", "expected"),
    [
        ("", {}, ""),
        ("nvidia0 nvidia1 nvidiactl nvidia-uvm nvidia-caps", {}, "0 1"),
        ("nvidia4 nvidia7 nvidiactl", {}, "0 1"),  # a container is given two of eight; CUDA counts what it sees
        ("nvidia0 nvidia1 nvidia2", {"CUDA_VISIBLE_DEVICES": "2, 0"}, "2 0"),
        ("nvidia0 nvidia1", {"CUDA_VISIBLE_DEVICES": ""}, ""),
        ("nvidia0 nvidia1", {"CUDA_VISIBLE_DEVICES": "-1"}, ""),
        ("nvidia0 nvidia1", {"CUDA_VISIBLE_DEVICES": "1,-1,0"}, "1"),
        ("nvidia0 nvidia1", {"CUDA_VISIBLE_DEVICES": "1,7,0"}, "1"),
        ("nvidia0 nvidia1", {"CUDA_VISIBLE_DEVICES": "GPU-8f6a-1,MIG-3/1/0"}, "GPU-8f6a-1 MIG-3/1/0"),
        ("", {"CUDA_VISIBLE_DEVICES": "0"}, ""),
        ("", {"DRUMLINE_GPUS": "0,1, 2,"}, "0 1 2"),
        ("nvidia0", {"DRUMLINE_GPUS": ""}, ""),
        ("nvidia0", {"DRUMLINE_GPUS": "a,b,a"}, "a b"),
        ("", {"DRUMLINE_GPUS": "0,1,2", "CUDA_VISIBLE_DEVICES": "2,1"}, "2 1"),
    ],
)
def test_gpus_are_those_that_the_launching_process_can_see(
    tmp_path: Path, nodes: str, environ: dict[str, str], expected: str
) -> None:
    root = machine(tmp_path, {f"dev/{name}": "" for name in nodes.split()})
    assert find_gpus(environ, root=root) == tuple(expected.split())
