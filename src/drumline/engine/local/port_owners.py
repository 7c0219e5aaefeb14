"""The processes that listen on ports of this machine, as far as this user may see them."""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Collection
from contextlib import suppress

from drumline.engine.local.place import named_ports
from drumline.engine.local.planned import local_plan
from drumline.engine.local.proc import PROC, read_tcp
from drumline.errors import EngineError
from drumline.plan.types import Plan
from drumline.record import Record
from drumline.runtime import TRACE_DIR

_LONGEST_COMMAND = 60


class PortOwner(Record):
    """A process that listens on a port; of another user's process only the user is known."""

    port: int
    user: str
    pid: int | None = None
    command: str = ""
    replica: str = ""  # its id if it is a replica: `4.worker.0`
    traces: str = ""  # the folder of its traces if it is a replica

    def __str__(self) -> str:
        process = f"pid {self.pid}, {self.user}" if self.pid else self.user
        if self.replica:
            return f"{self.replica} of another run ({process})"
        return f"`{self.command}` ({process})" if self.command else f"a process of {process}"


def find_port_owners(ports: Collection[int], proc: str = PROC) -> list[PortOwner]:
    """Return the processes that listen on these ports, at any address; sorted by port, each port once.

    This reads the kernel's tables and binds nothing: a closed connection in TIME_WAIT does not count as an owner.
    """
    listening = {each.port: each for each in read_tcp(proc=proc) if each.is_listening and each.port in ports}
    owners = _owners({each.name for each in listening.values()}, proc) if listening else {}
    return [_owner(port, each.uid, owners.get(each.name), proc) for port, each in sorted(listening.items())]


def require_free_ports(plan: Plan, run_dir: str) -> None:
    """Raise EngineError if a process of another run listens on a port that this plan names."""
    ports = () if local_plan(plan).private_network else named_ports(plan).values()
    for owner in find_port_owners(ports) if ports else ():
        if not owner.traces.startswith(f"{run_dir}/"):
            raise EngineError(f"port {owner.port} is taken by {owner}")


def _owners(names: Collection[str], proc: str) -> dict[str, int]:
    """Return the first process that has each of these sockets open."""
    found: dict[str, int] = {}
    for pid in sorted(int(entry) for entry in os.listdir(proc) if entry.isdecimal()):  # noqa: PTH208
        with suppress(OSError):  # another user's process, or it has just ended
            for entry in os.listdir(f"{proc}/{pid}/fd"):  # noqa: PTH208
                with suppress(OSError):
                    name = os.readlink(f"{proc}/{pid}/fd/{entry}")  # noqa: PTH115
                    if name in names:
                        found.setdefault(name, pid)
    return found


def _owner(port: int, uid: int, pid: int | None, proc: str) -> PortOwner:
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"user {uid}"
    if pid is None:
        return PortOwner(port, user)
    words = [word.decode(errors="replace") for word in _read_strings(f"{proc}/{pid}/cmdline")]
    command = " ".join(shlex.join(words).split())
    command = command if len(command) <= _LONGEST_COMMAND else f"{command[: _LONGEST_COMMAND - 1]}…"
    env = dict(each.decode(errors="replace").partition("=")[::2] for each in _read_strings(f"{proc}/{pid}/environ"))
    traces = env.get(TRACE_DIR, "")
    replica = ".".join(env.get(f"DRUMLINE_{part}", "?") for part in ("RUN", "ROLE", "INDEX")) if traces else ""
    return PortOwner(port, user, pid, command, replica, traces)


def _read_strings(path: str) -> list[bytes]:
    """Return the strings of a file in which each ends with a zero byte."""
    with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
        return file.read().split(b"\0")[:-1]
    return []
