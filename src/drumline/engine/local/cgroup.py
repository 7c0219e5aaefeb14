"""Memory cgroups of version 1 and 2: find where they can be made, make one, list its processes, remove it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from drumline.record import Record

# Version 2 only: a group with limited groups below it may hold no processes, so its processes are moved to this one.
ASIDE = "drumline.aside"

_ROUNDS = 20  # processes that are being moved may start others meanwhile
_DELEGATED = ("user.delegate", "trusted.delegate")  # how systemd marks a delegated group


class NoCgroupError(Exception):
    """No memory cgroup can be made here; the message says why, and what to allow."""


class CgroupParent(Record):
    """The cgroup below which the cgroups of replicas are made."""

    path: Path
    version: int


def own_cgroup_parent() -> CgroupParent:
    """Return where this process may make memory cgroups; raise NoCgroupError if it may not."""
    try:
        cgroups, mounts = (Path(f"/proc/self/{name}").read_text() for name in ("cgroup", "mountinfo"))
    except OSError:
        raise NoCgroupError("this system has no cgroups") from None
    return find_cgroup_parent(cgroups, mounts, privileged=os.geteuid() == 0)


def find_cgroup_parent(cgroups: str, mounts: str, *, privileged: bool) -> CgroupParent:
    """Return where memory cgroups can be made: the cgroup of this process, or its parent.

    The arguments are the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`. Raise NoCgroupError if no group can
    be made. A `privileged` process can write to every group, but uses only delegated ones.
    """
    own = {
        controller: path
        for _, controllers, path in (line.split(":", 2) for line in cgroups.splitlines())
        for controller in controllers.split(",")
    }
    if "memory" in own:
        return CgroupParent(_folder(own["memory"], mounts, "cgroup"), 1)
    if "" in own:
        return CgroupParent(prepare(_folder(own[""], mounts, "cgroup2"), privileged=privileged), 2)
    raise NoCgroupError("this kernel has no memory cgroups")


def prepare(own: Path, *, privileged: bool, controller: str = "memory") -> Path:
    """Enable a controller (version 2) for new groups below `own`, the group of this process; return their parent.

    The processes of `own` are moved to a group below it. If that was done before, `own` is this lower group, and its
    parent is returned.
    """
    if own.name == ASIDE and controller in _words(own.parent / "cgroup.subtree_control"):
        return own.parent
    if controller in _words(own / "cgroup.subtree_control"):
        return own
    if controller not in _words(own / "cgroup.controllers"):
        raise NoCgroupError(f"the cgroup {own} has no {controller} controller; {_ask_systemd(privileged=privileged)}")
    # Root can write to every group, but only a delegated one may be changed: others belong to systemd.
    if not (_is_delegated(own) if privileged else _is_writable(own)):
        raise NoCgroupError(f"the cgroup {own} is not delegated to this user; {_ask_systemd(privileged=privileged)}")
    aside = own / ASIDE
    try:
        aside.mkdir(exist_ok=True)
        _move(own, aside)
        write(own / "cgroup.subtree_control", f"+{controller}")
    except OSError as error:
        with suppress(OSError):
            _move(aside, own)
            aside.rmdir()
        raise NoCgroupError(f"the cgroup {own} cannot have limited groups below it: {error.strerror}") from None
    return own


def make_group(parent: CgroupParent, name: str, memory_bytes: int) -> Path:
    """Make a group with this memory limit, and return its folder; raise NoCgroupError if that is not allowed."""
    path = parent.path / name
    try:
        path.mkdir()
        limit_group(path, parent.version, memory_bytes)
    except OSError as error:
        remove_group(path)
        hint = ""
        if error.errno in (errno.EACCES, errno.EPERM):
            hint = "; an administrator can give this user a cgroup of its own"
        raise NoCgroupError(f"no cgroup can be made in {parent.path}: {error.strerror}{hint}") from None
    return path


def limit_group(path: Path, version: int, memory_bytes: int) -> None:
    """Limit the memory of a group; where the kernel counts swap, the group gets none in addition."""
    if version == 1:
        write(path / "memory.limit_in_bytes", str(memory_bytes))
        with suppress(FileNotFoundError):
            write(path / "memory.memsw.limit_in_bytes", str(memory_bytes))
        return
    write(path / "memory.max", str(memory_bytes))
    for name, value in (
        ("memory.swap.max", "0"),
        ("memory.oom.group", "1"),
    ):  # memory.oom.group: end all processes of the replica, not only one
        with suppress(FileNotFoundError):
            write(path / name, value)


def members(path: Path) -> set[int]:
    """Return every process in this group and below it."""
    return {
        pid for folder in _tree(path) for pid in _pids(folder) if pid > 0
    }  # 0 is a process outside this pid namespace


def remove_group(path: Path) -> bool:
    """Remove a group and those below it; return False if a process is in one of them."""
    for folder in _tree(path):
        with suppress(OSError):
            folder.rmdir()
    return not path.exists()


def write(path: Path, text: str) -> None:
    """Write to a file of the kernel; never create it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _folder(own: str, mounts: str, kind: str) -> Path:
    """Return the folder of the group `own` in a mount of this kind; raise NoCgroupError if it is not mounted."""
    found = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind_there, _, options = after.split(" ", 2)
        if kind_there != kind or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        root, point = (_unescape(word) for word in before.split(" ")[3:5])
        inside = own.removeprefix(root.rstrip("/"))
        if (own == root or own.startswith(f"{root.rstrip('/')}/")) and "/../" not in f"{own}/":
            found = Path(f"{point}{inside}" if inside != "/" else point)
    if found is None or not found.is_dir():
        raise NoCgroupError(f"the own cgroup {own} is not mounted")
    return found


def _unescape(word: str) -> str:
    """Decode a path of mountinfo, in which blanks are octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def _ask_systemd(*, privileged: bool) -> str:
    user = "" if privileged else "--user "
    return f"`systemd-run {user}--scope -p Delegate=yes drumline train` gives a run its own cgroup"


def _is_delegated(own: Path) -> bool:
    for name in _DELEGATED:
        with suppress(OSError):
            if os.getxattr(own, name) == b"1":
                return True
    return False


def _is_writable(own: Path) -> bool:
    needed = (own, own / "cgroup.procs", own / "cgroup.subtree_control")
    return all(os.access(path, os.W_OK) for path in needed)


def _move(source: Path, target: Path) -> None:
    """Move every process of a group to another, including those started meanwhile."""
    for _ in range(_ROUNDS):
        pids = _pids(source)
        for pid in pids:
            with suppress(ProcessLookupError):
                write(target / "cgroup.procs", str(pid))
        if not pids:
            return


def _pids(folder: Path) -> list[int]:
    return [int(word) for word in _words(folder / "cgroup.procs")]


def _words(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text().split()
    return []


def _tree(path: Path) -> Iterator[Path]:
    """Yield a group and those below it, the lowest first."""
    return (Path(folder) for folder, _, _ in os.walk(path, topdown=False))
