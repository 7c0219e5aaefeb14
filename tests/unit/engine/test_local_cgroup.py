"""Memory cgroups of versions 1 and 2, in folders like those of the kernel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from drumline.engine.local.cgroup import (
    ASIDE,
    CgroupParent,
    NoCgroupError,
    find_cgroup_parent,
    limit_group,
    members,
    prepare,
)
from drumline.runtime.keeper import out_of_memory

HYBRID = """\
9:name=systemd:/user.slice
4:memory:/anna/shell
3:cpu,cpuacct:/
0::/user.slice/session-3.scope
"""


def mount(kind: str, point: Path, *, root: str = "/", options: str = "rw") -> str:
    """A line of mountinfo, as the kernel writes it."""
    escaped = str(point).replace(" ", "\\040")
    return f"35 31 0:32 {root} {escaped} rw,nosuid shared:9 master:2 - {kind} {kind} {options}\n"


def group(path: Path, files: Mapping[str, str] = {}) -> Path:
    """A group's folder with these files."""
    path.mkdir(parents=True)
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def delegated(path: Path, *, enabled: str = "") -> Path:
    """A group of version 2 that its user may change; process 17 is in it."""
    return group(
        path,
        {"cgroup.procs": "17\n", "cgroup.controllers": "cpu memory pids\n", "cgroup.subtree_control": enabled},
    )


def test_version_1_uses_the_cgroup_of_this_process_below_its_mount(tmp_path: Path) -> None:
    own = group(tmp_path / "with blank" / "anna" / "shell")
    mounts = (
        mount("tmpfs", tmp_path)
        + mount("cgroup", tmp_path / "cpu", options="rw,cpu,cpuacct")
        + mount("cgroup", tmp_path / "with blank", options="rw,memory")
        + mount("cgroup2", tmp_path / "unified")
    )
    assert find_cgroup_parent(HYBRID, mounts, privileged=True) == CgroupParent(own, 1)


@pytest.mark.parametrize(
    ("root", "own", "inside"),
    [
        ("/", "/", "."),
        ("/", "/a/b", "a/b"),
        ("/docker/4711", "/docker/4711", "."),
        ("/docker/4711", "/docker/4711/a", "a"),
    ],
)
def test_a_container_sees_a_part_of_the_tree(root: str, own: str, inside: str, tmp_path: Path) -> None:
    folder = tmp_path / inside
    folder.mkdir(parents=True, exist_ok=True)
    ground = find_cgroup_parent(
        f"4:memory:{own}\n", mount("cgroup", tmp_path, root=root, options="rw,memory"), privileged=True
    )
    assert ground == CgroupParent(folder, 1)


@pytest.mark.parametrize(
    ("cgroups", "root", "sentence"),
    [
        ("", "/", "this kernel has no memory cgroups"),
        ("3:cpu:/\n", "/", "this kernel has no memory cgroups"),
        ("4:memory:/gone\n", "/", "the own cgroup /gone is not mounted"),
        ("4:memory:/docker/47\n", "/docker/4", "the own cgroup /docker/47 is not mounted"),
        ("4:memory:/../other\n", "/", "the own cgroup /../other is not mounted"),
        ("4:memory:/..\n", "/", "the own cgroup /.. is not mounted"),
        ("0::/\n", "/", "the own cgroup / is not mounted"),
    ],
)
def test_a_cgroup_that_is_not_visible_cannot_be_used(cgroups: str, root: str, sentence: str, tmp_path: Path) -> None:
    mounts = mount("cgroup", tmp_path, root=root, options="rw,memory")
    with pytest.raises(NoCgroupError) as refused:
        find_cgroup_parent(cgroups, mounts, privileged=True)
    assert str(refused.value) == sentence


def test_version_2_uses_the_own_group_after_moving_its_processes(tmp_path: Path) -> None:
    own = delegated(tmp_path / "user.slice" / "run-1.scope")
    group(own / ASIDE, {"cgroup.procs": ""})
    ground = find_cgroup_parent("0::/user.slice/run-1.scope\n", mount("cgroup2", tmp_path), privileged=False)
    assert ground == CgroupParent(own, 2)
    assert (own / ASIDE / "cgroup.procs").read_text() == "17"
    assert (own / "cgroup.subtree_control").read_text() == "+memory"


def test_a_process_that_was_moved_aside_uses_the_group_above(tmp_path: Path) -> None:
    own = delegated(tmp_path / "run-1.scope", enabled="cpu memory\n")
    assert prepare(delegated(own / ASIDE), privileged=False) == own
    assert (own / ASIDE / "cgroup.subtree_control").read_text() == ""


def test_a_cgroup_with_limited_ones_below_it_is_used_unchanged(tmp_path: Path) -> None:
    own = delegated(tmp_path / "own", enabled="memory\n")
    assert prepare(own, privileged=True) == own
    assert not (own / ASIDE).exists()


def test_root_uses_only_delegated_cgroups(tmp_path: Path) -> None:
    own = delegated(tmp_path / "session-3.scope")
    with pytest.raises(
        NoCgroupError, match=r"is not delegated to this user; `systemd-run --scope -p Delegate=yes drumline"
    ):
        prepare(own, privileged=True)
    assert not (own / ASIDE).exists()
    assert (own / "cgroup.subtree_control").read_text() == ""


def test_root_uses_a_cgroup_that_systemd_has_delegated(tmp_path: Path) -> None:
    own = delegated(tmp_path / "run-1.scope")
    group(own / ASIDE, {"cgroup.procs": ""})
    try:
        os.setxattr(own, "user.delegate", b"1")
    except OSError:
        # Without extended attributes the mark cannot be written; then the refusal is tested.
        with pytest.raises(NoCgroupError, match="is not delegated to this user"):
            prepare(own, privileged=True)
    else:
        assert prepare(own, privileged=True) == own


def test_a_cgroup_without_the_memory_controller_gets_a_hint_to_systemd(tmp_path: Path) -> None:
    own = delegated(tmp_path / "own")
    (own / "cgroup.controllers").write_text("cpu pids\n")
    with pytest.raises(NoCgroupError) as refused:
        prepare(own, privileged=False)
    assert str(refused.value) == (
        f"the cgroup {own} has no memory controller;"
        " `systemd-run --user --scope -p Delegate=yes drumline train` gives a run its own cgroup"
    )


def test_a_process_that_cannot_be_moved_aside_is_moved_back(tmp_path: Path) -> None:
    own = delegated(tmp_path / "own")
    (own / ASIDE).mkdir()  # the folder has no files of the kernel
    with pytest.raises(NoCgroupError, match="cannot have limited groups below it: No such file or directory"):
        prepare(own, privileged=False)
    assert not (own / ASIDE).exists()


def test_a_limit_of_version_1_counts_swap(tmp_path: Path) -> None:
    made = group(tmp_path / "made", {"memory.limit_in_bytes": "", "memory.memsw.limit_in_bytes": ""})
    limit_group(made, 1, 64 << 20)
    assert (made / "memory.limit_in_bytes").read_text() == "67108864"
    assert (made / "memory.memsw.limit_in_bytes").read_text() == "67108864"


def test_a_limit_of_version_2_allows_no_swap_and_ends_the_whole_group(tmp_path: Path) -> None:
    made = group(tmp_path / "made", {"memory.max": "", "memory.swap.max": "", "memory.oom.group": ""})
    limit_group(made, 2, 64 << 20)
    words = {path.name: path.read_text() for path in made.iterdir()}
    assert words == {"memory.max": "67108864", "memory.swap.max": "0", "memory.oom.group": "1"}


@pytest.mark.parametrize("version", [1, 2])
def test_without_swap_accounting_only_memory_is_limited(version: int, tmp_path: Path) -> None:
    name = {1: "memory.limit_in_bytes", 2: "memory.max"}[version]
    made = group(tmp_path / "made", {name: ""})
    limit_group(made, version, 4096)
    assert {path.name: path.read_text() for path in made.iterdir()} == {name: "4096"}


def test_members_include_those_of_the_cgroups_below(tmp_path: Path) -> None:
    made = group(tmp_path / "made", {"cgroup.procs": "12\n7\n"})
    group(made / "below" / "further", {"cgroup.procs": "9\n0\n"})
    assert members(made) == {7, 9, 12}
    assert members(tmp_path / "nowhere") == set()


EVENTS = "low 0\nhigh 0\nmax 31\noom 1\noom_kill {}\noom_group_kill 1\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, {}),
        ({"memory.events": EVENTS.format(0), "memory.peak": "9\n", "memory.max": "9\n"}, {}),
        (
            {"memory.events": EVENTS.format(3), "memory.peak": "67104768\n", "memory.max": "67108864\n"},
            {"out_of_memory": ("67104768", "67108864")},
        ),
        (
            {"memory.events": EVENTS.format(12), "memory.max": "67108864\n"},  # before Linux 5.19
            {"out_of_memory": ("", "67108864")},
        ),
        ({"memory.oom_control": CONTROL.format(0), "memory.max_usage_in_bytes": "9\n"}, {}),
        (
            {
                "memory.oom_control": CONTROL.format(1),
                "memory.max_usage_in_bytes": "50000000\n",
                "memory.memsw.max_usage_in_bytes": "67108864\n",
                "memory.limit_in_bytes": "67108864\n",
            },
            {"out_of_memory": ("67108864", "67108864")},
        ),
        (
            {
                "memory.oom_control": CONTROL.format(1),
                "memory.max_usage_in_bytes": "67108864\n",
                "memory.limit_in_bytes": "67108864\n",
            },
            {"out_of_memory": ("67108864", "67108864")},
        ),
        ({"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"}, {}),  # before Linux 4.13
    ],
)
def test_the_kernel_counts_the_processes_it_killed(
    files: dict[str, str], told: dict[str, object], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert out_of_memory(str(tmp_path)) == told
