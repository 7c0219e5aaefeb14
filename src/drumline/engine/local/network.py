"""A network that only one attempt of a run is in: a bridge, and a namespace with one address for each replica.

All of it belongs to a user namespace, so that no rights are needed. A process of ours goes in, makes everything and
leaves; what it hands back are descriptors, and the network is there for as long as somebody holds them. The
supervisor holds them until everybody has started, each keeper its own for as long as it lives: a supervisor that
dies changes nothing, and with the last keeper the network is gone.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from drumline.engine.local.network_errors import explain_network_error
from drumline.engine.local.readable import wait_ended, wait_readable
from drumline.engine.local.trace import has_begun, wait_for_keeper
from drumline.errors import EngineError
from drumline.plan.types import Launch, ReplicaId
from drumline.record import Record
from drumline.run.incarnation import Incarnation
from drumline.run.traces import TRACE
from drumline.runtime.child import start_python
from drumline.runtime.lock import is_locked

_BUILDER = "drumline.engine.local.namespaces"


class NamespaceDescriptors(Record):
    """One replica's way in: the namespaces that it enters, in this order, and what its keeper holds to keep them."""

    enter: tuple[int, ...]
    held: tuple[int, ...]


class _Hub(Record):
    """What everybody shares: the user namespace, and the network namespace with the bridge."""

    user: int
    network: int

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return both, in this order."""
        return self.user, self.network


class Network:
    """The private network of one attempt; owns its descriptors until `close`."""

    def __init__(self, run_dir: Path, launches: Sequence[Launch]) -> None:
        self._traces = {
            each.replica.id: run_dir / Incarnation(each.replica.id, each.attempt, each.incarnation).folder / TRACE
            for each in launches
        }
        self._hosts = {launch.replica.id: launch.place.host for launch in launches}
        self._namespaces: dict[ReplicaId, NamespaceDescriptors] = {}
        self._owned: list[int] = []

    async def connect(self) -> None:
        """Make the network for all replicas that have not begun.

        Those that have begun hold a network, and the others are joined to it: a supervisor died before all were
        started, or these return to a gang that runs on.
        """
        begun = [replica for replica, trace in self._traces.items() if has_begun(trace)]
        hosts = {each: self._hosts[each] for each in self._hosts if each not in begun}
        if hosts:
            await self._connect(hosts, await self._find_hub(begun))

    def namespaces(self, replica: ReplicaId) -> NamespaceDescriptors:
        """Return the way in of a replica that had not begun."""
        return self._namespaces[replica]

    def close(self) -> None:
        """Let go of our copies."""
        for descriptor in self._owned:
            os.close(descriptor)
        self._owned = []
        self._namespaces = {}

    async def _connect(self, hosts: Mapping[ReplicaId, str], hub: _Hub | None) -> None:
        made = await build({str(replica): host for replica, host in hosts.items()}, hub)
        self._owned += made
        if hub is None:
            hub = _Hub(*made[:2])
            made = made[2:]
        for replica, own, name in zip(hosts, made[::2], made[1::2], strict=True):
            self._namespaces[replica] = NamespaceDescriptors(enter=(hub.user, own, name), held=hub.descriptors)

    async def _find_hub(self, earlier: Sequence[ReplicaId]) -> _Hub | None:
        """The hub that a living keeper of these holds."""
        for replica in earlier:
            trace = self._traces[replica]
            keeper = await wait_for_keeper(trace)
            if keeper is not None and is_locked(trace) and (hub := open_hub(keeper)):
                self._owned += hub.descriptors
                return hub
        return None


def find_network_problem() -> str | None:
    """Why no private network can be made on this machine, found by making a small one."""
    try:
        with _Building({"worker.0": "10.77.0.1"}) as building:
            while not building.is_whole:
                building.read()
            _close(building.made)
    except EngineError as error:
        return error.message
    return None


async def build(hosts: Mapping[str, str], hub: _Hub | None = None) -> list[int]:
    """Make a namespace for each of these names, with its address, on this hub or on a new one; return descriptors.

    They are those of a new hub, if there was none, then two for each name: its network, and its host name. Raise
    EngineError with what to allow where the system refuses.
    """
    with _Building(hosts, hub) as building:
        while not building.is_whole:
            await wait_readable(building.connection.fileno())
            building.read()
        await wait_ended(building.child.pid)
        return building.made


class _Building:
    """A child that makes a network, and the descriptors of what it has made; closed before it is whole, none stays."""

    def __init__(self, hosts: Mapping[str, str], hub: _Hub | None = None) -> None:
        if sys.platform != "linux":
            raise EngineError("a private network needs Linux: leave out `network: private`")
        self.is_whole = False
        self.made: list[int] = []
        held = hub.descriptors if hub else ()
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                words = (
                    str(theirs.fileno()),
                    ",".join(map(str, held)),
                    *(word for each in hosts.items() for word in each),
                )
                self.child = start_python(_BUILDER, *words, descriptors=(theirs.fileno(), *held))
        except OSError as error:
            self.connection.close()
            raise EngineError(f"a private network cannot be made here: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        if not self.is_whole:
            _close(self.made)
            self.child.kill()
        self.child.wait()

    def read(self) -> None:
        """Take the next word of the child, and what it has made; raise EngineError if that was refused."""
        try:
            word, descriptors, flags, _ = socket.recv_fds(self.connection, 4096, 2)
            self.made += descriptors
            for descriptor in descriptors:  # Python 3.11 forgets the flag that would do it
                os.set_inheritable(descriptor, False)
            if flags & socket.MSG_CTRUNC:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            if word == b"unmapped":
                _map_owners(self.child.pid)
                self.connection.send(b"mapped")
        except OSError as error:
            raise EngineError(explain_network_error("owners", error.errno or 0)) from None
        self.is_whole = word == b"whole"
        if not word:
            raise EngineError("a private network cannot be made here: the process that makes it was killed")
        if word not in (b"unmapped", b"whole") and not descriptors:
            step, number = word.decode().split()
            raise EngineError(explain_network_error(step, int(number)))


def open_hub(keeper: int) -> _Hub | None:
    """The hub that a keeper holds, as descriptors of our own; None if it holds none, or is gone."""
    found: dict[str, int] = {}
    with suppress(OSError):
        for number in os.listdir(f"/proc/{keeper}/fd"):  # noqa: PTH208
            kind, colon, _ = os.readlink(f"/proc/{keeper}/fd/{number}").partition(":[")  # noqa: PTH115
            if colon and kind in ("user", "net"):
                found[kind] = os.open(f"/proc/{keeper}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
    if len(found) == 2:
        return _Hub(found["user"], found["net"])
    _close(found.values())
    return None


def _map_owners(pid: int) -> None:
    """Let users and groups be in a process's new user namespace who they are outside it.

    Root may map everybody, and keeps its rights over everybody's files; anybody else only themselves.
    """
    folder = Path(f"/proc/{pid}")
    is_root = os.geteuid() == 0
    if not is_root:
        (folder / "setgroups").write_text("deny")  # else the kernel lets nobody but root map a group
    for kind, own in (("uid", os.geteuid()), ("gid", os.getegid())):
        known = Path(f"/proc/self/{kind}_map").read_text().splitlines() if is_root else [f"{own} {own} 1"]
        ranges = (line.split() for line in known)
        (folder / f"{kind}_map").write_text("".join(f"{first} {first} {count}\n" for first, _, count in ranges))


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
