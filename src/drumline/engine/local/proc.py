"""The processes of this machine, in one raw pass over /proc: their parents, what they computed, and what they hold."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from drumline.record import Record

PROC = "/proc"
_MACHINES_OWN = "pid:[4026531836]"  # the numbers of processes outside of all containers: the same on every Linux


class TcpSocket(Record):
    """A TCP socket as the kernel lists it; addresses are hexadecimal, as `0100007F:4E21`."""

    here: str
    there: str
    is_listening: bool
    is_connected: bool
    uid: int
    inode: str

    @property
    def port(self) -> int:
        """Return its own port."""
        return int(self.here.rpartition(":")[2], 16)

    @property
    def name(self) -> str:
        """Return what a descriptor of it is a link to."""
        return f"socket:[{self.inode}]"


class Stat(Record):
    """A process as the kernel counts it; one that has ended and is not yet waited for is one too."""

    pid: int
    parent: int
    cpu_ticks: int
    reaped_ticks: int  # of its children that have ended
    start_ticks: int  # since boot
    resident_pages: int


def read_stats(proc: str = PROC) -> dict[int, Stat]:
    """Look at every process once."""
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
        # The name in brackets may hold anything, brackets and spaces too.
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
    """Everybody below each of these, without itself; the first is the oldest child."""
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
                _, here, there, state, _, _, _, uid, _, inode = line.split()[:10]
                yield TcpSocket(here, there, state == "0A", state == "01", int(uid), inode)


def read_state(pid: int) -> bytes:
    """Return the letter for what a process does: `T` is stopped, `Z` has ended; nothing if it is gone."""
    with suppress(OSError), open(f"{PROC}/{pid}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b") ")[2][:1]
    return b""


def proportional_bytes(pid: int, proc: str = PROC) -> int | None:
    """A process's memory, each page divided by how many share it; None if we may not know."""
    with suppress(OSError, ValueError, IndexError), open(f"{proc}/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123
        return int(file.read().split(b"\nPss:", 1)[1].split(None, 1)[0]) * 1024
    return None


def variable_of(pid: int, name: str, proc: str = PROC) -> str | None:
    """A variable of a process's environment as it was started; None if it has none, or is gone."""
    with suppress(OSError), open(f"{proc}/{pid}/environ", "rb") as file:  # noqa: PTH123
        for entry in file.read().split(b"\0"):
            key, _, value = entry.partition(b"=")
            if key == name.encode():
                return os.fsdecode(value)
    return None


def is_initial_pid_namespace(proc: str = PROC) -> bool:
    """Whether processes have the numbers here that they have on the machine itself."""
    with suppress(OSError):
        return os.readlink(f"{proc}/self/ns/pid") == _MACHINES_OWN  # noqa: PTH115
    return False
