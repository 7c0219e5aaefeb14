"""Memory cgroups of this machine, of version 1 and 2: where ours may be, one made, who is in it, and one removed."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from drumline.record import Record

# Version 2 only: below a group that has limited ones there, nobody may stay in it; so here goes who was in it.
ASIDE = "drumline.aside"

_ROUNDS = 20  # whoever is being moved may start others meanwhile
_DELEGATED = ("user.delegate", "trusted.delegate")  # how systemd marks a group that it leaves to its processes


class NoCgroupError(Exception):
    """No memory cgroup can be made here; why, and what to allow."""


class CgroupParent(Record):
    """The group below which ours are made."""

    path: Path
    version: int


def own_cgroup_parent() -> CgroupParent:
    """Where this process may make memory cgroups; raise NoCgroupError where it may not."""
    try:
        cgroups, mounts = (Path(f"/proc/self/{name}").read_text() for name in ("cgroup", "mountinfo"))
    except OSError:
        raise NoCgroupError("this system has no cgroups") from None
    return find_cgroup_parent(cgroups, mounts, privileged=os.geteuid() == 0)


def find_cgroup_parent(cgroups: str, mounts: str, *, privileged: bool) -> CgroupParent:
    """Where we may make memory cgroups, by `/proc/self/cgroup` and `/proc/self/mountinfo`: only below our own.

    Raise NoCgroupError where there is nothing of the kind. `privileged` is whether we may write to groups that
    nobody left to us, which does not make them ours.
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
    """The group of version 2 in which this controller works for groups made there: ours, once it is empty."""
    if own.name == ASIDE and controller in _words(own.parent / "cgroup.subtree_control"):
        return own.parent
    if controller in _words(own / "cgroup.subtree_control"):
        return own
    if controller not in _words(own / "cgroup.controllers"):
        raise NoCgroupError(f"the cgroup {own} has no {controller} controller; {_ask_systemd(privileged=privileged)}")
    # Root may change every group; that does not make it ours, and others who count on it would be surprised.
    if not (_is_marked(own) if privileged else _is_writable(own)):
        raise NoCgroupError(f"the cgroup {own} is not left to this user; {_ask_systemd(privileged=privileged)}")
    aside = own / ASIDE
    try:
        aside.mkdir(exist_ok=True)
        _move(own, aside)
        write(own / "cgroup.subtree_control", f"+{controller}")
    except OSError as error:
        with suppress(OSError):
            _move(aside, own)
            aside.rmdir()
        raise NoCgroupError(f"the cgroup {own} cannot have limited ones below it: {error.strerror}") from None
    return own


def make_group(ground: CgroupParent, name: str, memory_bytes: int) -> Path:
    """Make a new group with this limit; raise NoCgroupError if that may not be."""
    path = ground.path / name
    try:
        path.mkdir()
        limit_group(path, ground.version, memory_bytes)
    except OSError as error:
        remove_group(path)
        remedy = ""
        if error.errno in (errno.EACCES, errno.EPERM):
            remedy = "; an administrator can give this user a cgroup of its own"
        raise NoCgroupError(f"no cgroup can be made in {ground.path}: {error.strerror}{remedy}") from None
    return path


def limit_group(path: Path, version: int, memory_bytes: int) -> None:
    """Let a group have so much memory and not stretch it with swap, where swap is counted."""
    if version == 1:
        write(path / "memory.limit_in_bytes", str(memory_bytes))
        with suppress(FileNotFoundError):
            write(path / "memory.memsw.limit_in_bytes", str(memory_bytes))
        return
    write(path / "memory.max", str(memory_bytes))
    for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):  # who loses a part would limp on
        with suppress(FileNotFoundError):
            write(path / name, value)


def members(path: Path) -> set[int]:
    """Every process in this group and below it."""
    return {pid for folder in _tree(path) for pid in _pids(folder) if pid > 0}  # 0 is one that we cannot see


def remove_group(path: Path) -> bool:
    """Remove a group and what was made below it; False if that cannot be, since somebody is in it."""
    for folder in _tree(path):
        with suppress(OSError):
            folder.rmdir()
    return not path.exists()


def write(path: Path, text: str) -> None:
    """Tell the kernel something; its files are there or not, and none is made."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _folder(own: str, mounts: str, kind: str) -> Path:
    """The folder of our own group, as far as this kind is mounted and shows it."""
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
        raise NoCgroupError(f"the cgroup {own}, in which we are, is mounted nowhere")
    return found


def _unescape(word: str) -> str:
    """A path as mountinfo writes it: blanks and their like are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def _ask_systemd(*, privileged: bool) -> str:
    user = "" if privileged else "--user "
    return f"`systemd-run {user}--scope -p Delegate=yes drumline train` gives a run one of its own"


def _is_marked(own: Path) -> bool:
    for name in _DELEGATED:
        with suppress(OSError):
            if os.getxattr(own, name) == b"1":
                return True
    return False


def _is_writable(own: Path) -> bool:
    needed = (own, own / "cgroup.procs", own / "cgroup.subtree_control")
    return all(os.access(path, os.W_OK) for path in needed)


def _move(source: Path, target: Path) -> None:
    """Move every process of a group to another, also those that are started meanwhile."""
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
    """A group and those below it, the lowest first."""
    return (Path(folder) for folder, _, _ in os.walk(path, topdown=False))
