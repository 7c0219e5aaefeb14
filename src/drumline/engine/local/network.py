"""A network that only one attempt of a run is in: a bridge, and a namespace with one address for each replica.

All of it belongs to a user namespace, so that no rights are needed. A process of ours goes in, makes everything and
leaves; what it hands back are descriptors, and the network is there for as long as somebody holds them. The
supervisor holds them until everybody has started, each keeper its own for as long as it lives: a supervisor that
dies changes nothing, and with the last keeper the network is gone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from drumline.engine.local.life import Life
from drumline.engine.local.netlink import Netlink
from drumline.engine.local.refusal import why_refused
from drumline.engine.local.trace import read_trace
from drumline.errors import EngineError
from drumline.plan.types import Launch, ReplicaId
from drumline.record import Record
from drumline.run.traces import TRACE
from drumline.runtime.keeper import close_all_but, enter_namespace
from drumline.runtime.lock import is_locked

NETWORK_BITS = 16
BRIDGE, OWN_END = "hub", "eth0"
_LOOPBACK = 1  # its index in every network namespace

_NEW_USER, _NEW_NETWORK, _NEW_NAME = 0x1000_0000, 0x4000_0000, 0x0400_0000
_MOMENT_SECONDS = 0.005


class Door(Record):
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
        self._run_dir = run_dir
        self._lives = {each.replica.id: Life(each.replica.id, each.attempt, each.incarnation) for each in launches}
        self._hosts = {launch.replica.id: launch.place.host for launch in launches}
        self._doors: dict[ReplicaId, Door] = {}
        self._owned: list[int] = []

    def door(self, replica: ReplicaId) -> Door:
        """A replica's way in. The first to ask has the network made for all who have not begun.

        Who has keeps the network, and the others are joined to it: a supervisor died before everybody was started, or
        these return to a line that lives on.
        """
        if not self._doors:
            begun = [name for name, life in self._lives.items() if life.has_begun(self._run_dir)]
            self._connect({each: self._hosts[each] for each in self._hosts if each not in begun}, self._find_hub(begun))
        return self._doors[replica]

    def close(self) -> None:
        """Let go of our copies."""
        for descriptor in self._owned:
            os.close(descriptor)
        self._owned = []
        self._doors = {}

    def _connect(self, hosts: Mapping[ReplicaId, str], hub: _Hub | None) -> None:
        made = build({str(replica): host for replica, host in hosts.items()}, hub)
        self._owned += made
        if hub is None:
            hub = _Hub(*made[:2])
            made = made[2:]
        for replica, own, name in zip(hosts, made[::2], made[1::2], strict=True):
            self._doors[replica] = Door(enter=(hub.user, own, name), held=hub.descriptors)

    def _find_hub(self, earlier: Sequence[ReplicaId]) -> _Hub | None:
        """The hub that a living keeper of these holds."""
        for replica in earlier:
            for keeper in _keepers(self._lives[replica].folder(self._run_dir) / TRACE):
                hub = borrow_hub(keeper)
                if hub:
                    self._owned += hub.descriptors
                    return hub
        return None


def objection() -> str | None:
    """Why no private network can be made on this machine, found by making a small one."""
    try:
        for descriptor in build({"worker.0": "10.77.0.1"}):
            os.close(descriptor)
    except EngineError as error:
        return error.message
    except OSError as error:
        return f"a private network cannot be made here: {error.strerror}"
    return None


def build(hosts: Mapping[str, str], hub: _Hub | None = None) -> list[int]:
    """Make a namespace for each of these names, with its address, on this hub or on a new one; return descriptors.

    They are those of a new hub, if there was none, then two for each name: its network, and its host name. Raise
    EngineError with what to allow where the system refuses.
    """
    if sys.platform != "linux":
        raise EngineError("a private network needs Linux: leave out `network: private`")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        _build_and_leave(theirs, hosts, hub)
    theirs.close()
    received: list[int] = []
    try:
        with ours:
            while True:
                word, descriptors, flags, _ = socket.recv_fds(ours, 4096, 2)
                received += descriptors
                for descriptor in descriptors:  # Python 3.11 forgets the flag that would do it
                    os.set_inheritable(descriptor, False)
                if flags & socket.MSG_CTRUNC:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                if word == b"unmapped":
                    _map_owners(pid)
                    ours.send(b"mapped")
                elif word == b"whole":
                    return received
                elif not word:
                    raise EngineError("a private network cannot be made here: the process that makes it was killed")
                elif not descriptors:
                    step, number = word.decode().split()
                    raise EngineError(why_refused(step, int(number)))
    except OSError as error:
        _close(received)
        raise EngineError(why_refused("owners", error.errno or 0)) from None
    except EngineError:
        _close(received)
        raise
    finally:
        os.waitpid(pid, 0)


def borrow_hub(keeper: int) -> _Hub | None:
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


def _keepers(trace: Path) -> Iterator[int]:
    """Who keeps the life of this trace, if anybody does; one that was just forked is waited for."""
    while is_locked(trace):
        keeper = read_trace(trace).keeper
        if keeper is not None:
            yield keeper
            return
        time.sleep(_MOMENT_SECONDS)


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


def _build_and_leave(answer: socket.socket, hosts: Mapping[str, str], hub: _Hub | None) -> NoReturn:
    """Make everything, in a fork of its own, and send the descriptors."""
    step = "user"
    try:
        signal.set_wakeup_fd(-1)
        close_all_but(answer.fileno(), *(hub.descriptors if hub else ()))
        if hub is None:
            _leave_namespace(_NEW_USER)
            answer.send(b"unmapped")
            answer.recv(64)
            step = "network"
            _leave_namespace(_NEW_NETWORK)
            _send(answer, [_own("user"), _own("net")])
        else:
            enter_namespace(hub.user)
            step = "network"
            enter_namespace(hub.network)
        with Netlink() as wires:
            step = "bridge"
            if hub is None:
                wires.add_bridge(BRIDGE)
            bridge = socket.if_nametoindex(BRIDGE)
            for name, host in hosts.items():
                if hub:
                    with suppress(OSError):  # of a namespace that died with its supervisor; the kernel takes its time
                        wires.delete(name)
                step = "network"
                _leave_namespace(_NEW_NETWORK)
                step = "name"
                _leave_namespace(_NEW_NAME)
                # Its host name is its address, so that whoever looks up its own name finds where its peers reach it.
                socket.sethostname(host)
                step = "cable"
                own = _own("net")
                wires.add_cable(name, bridge, end=OWN_END, namespace=own)
                with Netlink() as inside:
                    inside.switch(_LOOPBACK)
                    end = socket.if_nametoindex(OWN_END)
                    inside.switch(end)
                    inside.add_address(end, host, NETWORK_BITS)
                _send(answer, [own, _own("uts")])
        answer.send(b"whole")
    except OSError as error:
        answer.send(f"{step} {error.errno}".encode())
    finally:
        os._exit(0)


def _leave_namespace(kind: int) -> None:
    """Go on in a new namespace of this kind; from 3.12 on Python knows the call itself."""
    if ctypes.CDLL(None, use_errno=True).unshare(kind):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _own(kind: str) -> int:
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _send(answer: socket.socket, descriptors: Sequence[int]) -> None:
    socket.send_fds(answer, [b"descriptors"], descriptors)
    _close(descriptors)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
