"""Processes and TCP sockets of this machine, read from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from drumline.record import Record

PROC = "/proc"
_INITIAL = "pid:[4026531836]"  # the initial pid namespace has this inode on every Linux


class TcpSocket(Record):
    """A TCP socket as the kernel lists it; addresses are hexadecimal, as `0100007F:4E21`."""

    local: str
    remote: str
    is_listening: bool
    is_connected: bool
    uid: int
    inode: str

    @property
    def port(self) -> int:
        """Return the local port."""
        return int(self.local.rpartition(":")[2], 16)

    @property
    def name(self) -> str:
        """Return the link target of its descriptors in /proc/PID/fd."""
        return f"socket:[{self.inode}]"


class Stat(Record):
    """Counters of a process; also of a zombie."""

    pid: int
    parent: int
    cpu_ticks: int
    reaped_ticks: int  # of its children that have ended
    start_ticks: int  # since boot
    resident_pages: int


def read_stats(proc: str = PROC) -> dict[int, Stat]:
    """Return the counters of every process."""
    found = {}
    for entry in os.listdir(proc):  # noqa: PTH208
        if entry.isdecimal() and (stat := _read_stat(f"{proc}/{entry}/stat", int(entry))):
            found[stat.pid] = stat
    return found


def _read_stat(path: str, pid: int) -> Stat | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(file, 2048)
        finally:
            os.close(file)
        # The name in parentheses may contain parentheses and spaces.
        fields = data[data.rindex(b")") + 2 :].split(b" ", 22)
        return Stat(
            pid,
            int(fields[1]),
            int(fields[11]) + int(fields[12]),
            int(fields[13]) + int(fields[14]),
            int(fields[19]),
            int(fields[21]),
        )
    except (OSError, ValueError, IndexError):
        return None  # it has just ended


def trees(roots: Iterable[int], stats: Mapping[int, Stat]) -> dict[int, list[Stat]]:
    """Return the descendants of each of these processes, its oldest child first."""
    children: dict[int, list[Stat]] = {}
    for stat in stats.values():
        children.setdefault(stat.parent, []).append(stat)
    found = {}
    for root in roots:
        tree = sorted(children.get(root, ()), key=lambda stat: (stat.start_ticks, stat.pid))
        for stat in tree:  # grows while it is walked
            tree += children.get(stat.pid, ())
        found[root] = tree
    return found


def read_tcp(pid: int | str = "self", proc: str = PROC) -> Iterator[TcpSocket]:
    """Yield every TCP socket in the network of a process."""
    for table in ("tcp6", "tcp"):
        with suppress(OSError), open(f"{proc}/{pid}/net/{table}", encoding="ascii") as file:  # noqa: PTH123
            for line in file.readlines()[1:]:
                _, local, remote, state, _, _, _, uid, _, inode = line.split()[:10]
                yield TcpSocket(local, remote, state == "0A", state == "01", int(uid), inode)


def read_state(pid: int) -> bytes:
    """Return the state letter of a process: `T` is stopped, `Z` is a zombie; empty if it does not exist."""
    with suppress(OSError), open(f"{PROC}/{pid}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b") ")[2][:1]
    return b""


def proportional_bytes(pid: int, proc: str = PROC) -> int | None:
    """Return a process's memory with each page divided by the number of its users; None if it may not be read."""
    with suppress(OSError, ValueError, IndexError), open(f"{proc}/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123
        return int(file.read().split(b"\nPss:", 1)[1].split(None, 1)[0]) * 1024
    return None


def variable_of(pid: int, name: str, proc: str = PROC) -> str | None:
    """Return a variable of a process's initial environment; None if it is not set or the process has ended."""
    with suppress(OSError), open(f"{proc}/{pid}/environ", "rb") as file:  # noqa: PTH123
        for entry in file.read().split(b"\0"):
            key, _, value = entry.partition(b"=")
            if key == name.encode():
                return os.fsdecode(value)
    return None


def is_initial_pid_namespace(proc: str = PROC) -> bool:
    """Return whether this process is in the machine's initial pid namespace."""
    with suppress(OSError):
        return os.readlink(f"{proc}/self/ns/pid") == _INITIAL  # noqa: PTH115
    return False
