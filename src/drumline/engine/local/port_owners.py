"""Who has a port of this machine: whoever listens there, as far as the kernel lets us see."""

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
    """Somebody who listens on a port; of processes that are not ours to look at, only whose they are."""

    port: int
    user: str
    pid: int | None = None
    command: str = ""
    replica: str = ""  # as drumline calls it, if it is one: `4.worker.0`
    traces: str = ""  # the folder of its traces then

    def __str__(self) -> str:
        who = f"pid {self.pid}, {self.user}" if self.pid else self.user
        if self.replica:
            return f"{self.replica} of another run ({who})"
        return f"`{self.command}` ({who})" if self.command else f"a process of {who}"


def find_port_owners(ports: Collection[int], proc: str = PROC) -> list[PortOwner]:
    """Who listens on these ports, at whatever address; sorted by port, each port once.

    That is read and not tried: connections that were closed a moment ago keep nobody from a port who serves there.
    """
    listening = {each.port: each for each in read_tcp(proc=proc) if each.is_listening and each.port in ports}
    owners = _owners({each.name for each in listening.values()}, proc) if listening else {}
    return [_holder(port, each.uid, owners.get(each.name), proc) for port, each in sorted(listening.items())]


def require_free_ports(plan: Plan, run_dir: str) -> None:
    """Refuse a line that is about to start where somebody has a port that it names; the run's own are on their way."""
    ports = () if local_plan(plan).private_network else named_ports(plan).values()
    for holder in find_port_owners(ports) if ports else ():
        if not holder.traces.startswith(f"{run_dir}/"):
            raise EngineError(f"port {holder.port} is taken by {holder}")


def _owners(names: Collection[str], proc: str) -> dict[str, int]:
    """Return the first process that has each of these sockets open."""
    found: dict[str, int] = {}
    for pid in sorted(int(entry) for entry in os.listdir(proc) if entry.isdecimal()):  # noqa: PTH208
        with suppress(OSError):  # somebody else's, or just gone
            for entry in os.listdir(f"{proc}/{pid}/fd"):  # noqa: PTH208
                with suppress(OSError):
                    name = os.readlink(f"{proc}/{pid}/fd/{entry}")  # noqa: PTH115
                    if name in names:
                        found.setdefault(name, pid)
    return found


def _holder(port: int, uid: int, pid: int | None, proc: str) -> PortOwner:
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"user {uid}"
    if pid is None:
        return PortOwner(port, user)
    words = [word.decode(errors="replace") for word in _read(f"{proc}/{pid}/cmdline")]
    command = " ".join(shlex.join(words).split())
    command = command if len(command) <= _LONGEST_COMMAND else f"{command[: _LONGEST_COMMAND - 1]}…"
    env = dict(each.decode(errors="replace").partition("=")[::2] for each in _read(f"{proc}/{pid}/environ"))
    traces = env.get(TRACE_DIR, "")
    replica = ".".join(env.get(f"DRUMLINE_{part}", "?") for part in ("RUN", "ROLE", "INDEX")) if traces else ""
    return PortOwner(port, user, pid, command, replica, traces)


def _read(path: str) -> list[bytes]:
    """What is in a file, each piece of which ends with a zero."""
    with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
        return file.read().split(b"\0")[:-1]
    return []
