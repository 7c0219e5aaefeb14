"""The private network of one attempt: a bridge, and a network namespace with one address for each replica.

The network belongs to a user namespace, so that no privileges are needed. A child process makes it and sends its
descriptors to the supervisor; the network exists as long as a process holds them. The supervisor holds them until all
replicas have started, and each keeper holds those of its replica until it ends: the network survives the supervisor and
ends with the last keeper.
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
    """The namespaces that a replica enters, in this order, and the descriptors that its keeper holds to keep them."""

    enter: tuple[int, ...]
    held: tuple[int, ...]


class _Hub(Record):
    """The namespaces that all replicas share: a user namespace, and the network namespace with the bridge."""

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

        If some replicas have begun, the others join the network that these hold. Either a supervisor died before all
        had started, or a replica restarts while others run.
        """
        begun = [replica for replica, trace in self._traces.items() if has_begun(trace)]
        hosts = {each: self._hosts[each] for each in self._hosts if each not in begun}
        if hosts:
            await self._connect(hosts, await self._find_hub(begun))

    def namespaces(self, replica: ReplicaId) -> NamespaceDescriptors:
        """Return the namespaces for a replica that had not begun when `connect` was called."""
        return self._namespaces[replica]

    def close(self) -> None:
        """Close the descriptors of this process."""
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
        """Return the hub that a running keeper of these replicas holds."""
        for replica in earlier:
            trace = self._traces[replica]
            keeper = await wait_for_keeper(trace)
            if keeper is not None and is_locked(trace) and (hub := open_hub(keeper)):
                self._owned += hub.descriptors
                return hub
        return None


def find_network_problem() -> str | None:
    """Return why no private network can be made on this machine; None if a small one could be made."""
    try:
        with _NetworkBuilder({"worker.0": "10.77.0.1"}) as builder:
            while not builder.is_whole:
                builder.read()
            _close(builder.made)
    except EngineError as error:
        return error.message
    return None


async def build(hosts: Mapping[str, str], hub: _Hub | None = None) -> list[int]:
    """Make a network namespace for each name, with its address, and connect it to this hub or to a new one.

    Return the descriptors: two of the new hub, unless `hub` was given, then two for each name, of its network namespace
    and of the namespace of its host name. Raise EngineError, with the setting to change, if the system refuses.
    """
    with _NetworkBuilder(hosts, hub) as builder:
        while not builder.is_whole:
            await wait_readable(builder.connection.fileno())
            builder.read()
        await wait_ended(builder.child.pid)
        return builder.made


class _NetworkBuilder:
    """The child that makes a network, and the descriptors that it sent; closed if the network is incomplete."""

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
            message = f"a private network cannot be created on this machine: {error.strerror}"
            raise EngineError(message, hint="leave out `network: private`") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        if not self.is_whole:
            _close(self.made)
            self.child.kill()
        self.child.wait()

    def read(self) -> None:
        """Read the next message of the child, with its descriptors; raise EngineError if the system refused a call."""
        try:
            word, descriptors, flags, _ = socket.recv_fds(self.connection, 4096, 2)
            self.made += descriptors
            for descriptor in descriptors:  # Python 3.11 does not set close-on-exec
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
            raise EngineError(
                "a private network cannot be created on this machine: the process that makes it was killed"
            )
        if word not in (b"unmapped", b"whole") and not descriptors:
            step, number = word.decode().split()
            raise EngineError(explain_network_error(step, int(number)))


def open_hub(keeper: int) -> _Hub | None:
    """Open the hub that a keeper holds; return None if it holds none or has ended."""
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
    """Map users and groups to themselves in a process's new user namespace.

    Root maps all ids, and so keeps its rights over all files; another user may map only its own.
    """
    folder = Path(f"/proc/{pid}")
    is_root = os.geteuid() == 0
    if not is_root:
        (folder / "setgroups").write_text("deny")  # without this the kernel allows only root to map a group
    for kind, own in (("uid", os.geteuid()), ("gid", os.getegid())):
        known = Path(f"/proc/self/{kind}_map").read_text().splitlines() if is_root else [f"{own} {own} 1"]
        ranges = (line.split() for line in known)
        (folder / f"{kind}_map").write_text("".join(f"{first} {first} {count}\n" for first, _, count in ranges))


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
