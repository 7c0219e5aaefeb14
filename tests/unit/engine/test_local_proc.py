"""Processes are read from a simulated /proc, and this process from the real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drumline.engine.local.capacity import find_memory
from drumline.engine.local.proc import proportional_bytes, read_stats, trees, variable_of


class Proc:
    """A folder like /proc."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, pid: int, parent: int, *, name: str = "python", state: str = "S", start: int = 100) -> None:
        """Write a process that computed 3 + 4 ticks, its ended children 5 + 6, and that has 10 pages."""
        fields = [state, parent, pid, pid, 0, -1, 0, 0, 0, 0, 0, 3, 4, 5, 6, 20, 0, 1, 0, start, 999, 10, 1, 2, 3]
        (self.path / str(pid)).mkdir()
        (self.path / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\n")
    return Proc(tmp_path)


def test_a_process_with_any_name_is_read_correctly(proc: Proc) -> None:
    for pid, name in ((7, "a) S 1 (b"), (8, "(("), (9, "x y\nz")):
        proc.add(pid, 1, name=name)
    for stat in read_stats(str(proc.path)).values():
        assert (stat.parent, stat.cpu_ticks, stat.reaped_ticks, stat.start_ticks) == (1, 7, 11, 100)
        assert stat.resident_pages == 10


def test_a_process_that_ends_meanwhile_is_left_out(proc: Proc) -> None:
    proc.add(7, 1)
    (proc.path / "8").mkdir()
    (proc.path / "9").mkdir()
    (proc.path / "9" / "stat").write_text("")
    assert list(read_stats(str(proc.path))) == [7]


def test_a_tree_has_all_descendants_the_oldest_child_first(proc: Proc) -> None:
    proc.add(10, 1)  # a keeper
    proc.add(30, 10, start=300)  # an orphan that came to it
    proc.add(20, 10, start=200)
    proc.add(21, 20, state="Z")
    proc.add(31, 30)
    proc.add(40, 1)  # not a descendant
    stats = read_stats(str(proc.path))
    found = trees([10, 99], stats)
    assert [stat.pid for stat in found[10]] == [20, 30, 21, 31]
    assert found[99] == []


def test_values_of_this_process_are_those_of_the_kernel() -> None:
    me = read_stats()[os.getpid()]
    assert me.parent == os.getppid()
    exact, resident = proportional_bytes(me.pid), me.resident_pages * os.sysconf("SC_PAGESIZE")
    assert exact
    assert 0 < exact <= resident * 1.2
    assert variable_of(me.pid, "PATH") == os.environ["PATH"]
    assert variable_of(me.pid, "NO_SUCH_VARIABLE") is None


def test_a_process_that_has_ended_has_no_values(proc: Proc) -> None:
    assert proportional_bytes(5, str(proc.path)) is None
    assert variable_of(5, "PATH", str(proc.path)) is None


MACHINE = {"proc/meminfo": "MemTotal:       1000 kB\nMemFree: 1 kB\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (MACHINE, 1_024_000),
        ({**MACHINE, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "5000\n"}, 5000),
        (
            {
                **MACHINE,
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/memory.max": "4000\n",
            },
            4000,
        ),
        (
            {
                **MACHINE,
                "proc/self/cgroup": "3:cpu:/x\n2:memory:/a\n0::/\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "3000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            3000,
        ),
        # In a container the group has a name that is not there, and its limit lies on top.
        ({**MACHINE, "proc/self/cgroup": "0::/host/pod\n", "sys/fs/cgroup/memory.max": "2000\n"}, 2000),
        ({**MACHINE, "proc/self/cgroup": "0::/../..\n", "sys/fs/cgroup/memory.max": "2000\n"}, 1_024_000),
    ],
    ids=["machine", "group", "group above", "version 1", "container", "outside"],
)
def test_usable_memory_is_the_lowest_of_all_limits(files: dict[str, str], expected: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert find_memory(tmp_path) == expected
