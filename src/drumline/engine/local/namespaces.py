"""The child that makes a private network: it leaves for new namespaces, which no process with an event loop may.

What it makes is there for as long as a process holds the descriptors that it sends.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Sequence
from contextlib import suppress

from drumline.engine.local.netlink import Netlink
from drumline.runtime.keeper import enter_namespace

NETWORK_BITS = 16
BRIDGE, OWN_END = "hub", "eth0"
_LOOPBACK = 1  # its index in every network namespace
_NEW_USER, _NEW_NETWORK, _NEW_NAME = 0x1000_0000, 0x4000_0000, 0x0400_0000


def main(descriptor: str, hub: str, *names: str) -> None:
    """Make a network for these, each a name and an address, and send its descriptors.

    `hub` has the descriptors of the user and network namespace of one that is joined, or none.
    """
    hosts = dict(zip(names[::2], names[1::2], strict=True))
    answer = socket.socket(fileno=int(descriptor))
    step = "user"
    try:
        if not hub:
            _leave_namespace(_NEW_USER)
            answer.send(b"unmapped")
            answer.recv(64)
            step = "network"
            _leave_namespace(_NEW_NETWORK)
            _send(answer, [_own("user"), _own("net")])
        else:
            user, network = map(int, hub.split(","))
            enter_namespace(user)
            step = "network"
            enter_namespace(network)
        with Netlink() as wires:
            step = "bridge"
            if not hub:
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
                # Its host name is its address, so that looking up its own name gives where its peers reach it.
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
        with suppress(OSError):  # nothing waits for it any more
            answer.send(f"{step} {error.errno}".encode())


def _leave_namespace(kind: int) -> None:
    """Go on in a new namespace of this kind; from 3.12 on Python knows the call itself."""
    if ctypes.CDLL(None, use_errno=True).unshare(kind):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _own(kind: str) -> int:
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _send(answer: socket.socket, descriptors: Sequence[int]) -> None:
    socket.send_fds(answer, [b"descriptors"], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
