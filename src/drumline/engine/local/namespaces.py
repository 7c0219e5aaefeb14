"""The child process that makes a private network, since the supervisor cannot enter other namespaces itself.

The network exists as long as a process holds the descriptors that the child sends.
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
    """Make a network for these names, each followed by its address, and send its descriptors.

    `hub` has the descriptors of the user and network namespace to join, separated by a comma; "" makes a new hub.
    """
    hosts = dict(zip(names[::2], names[1::2], strict=True))
    answer = socket.socket(fileno=int(descriptor))
    step = "user"
    try:
        if not hub:
            _new_namespace(_NEW_USER)
            answer.send(b"unmapped")
            answer.recv(64)
            step = "network"
            _new_namespace(_NEW_NETWORK)
            _send(answer, [_own("user"), _own("net")])
        else:
            user, network = map(int, hub.split(","))
            enter_namespace(user)
            step = "network"
            enter_namespace(network)
        with Netlink() as netlink:
            step = "bridge"
            if not hub:
                netlink.add_bridge(BRIDGE)
            bridge = socket.if_nametoindex(BRIDGE)
            for name, host in hosts.items():
                if hub:
                    with suppress(
                        OSError
                    ):  # left by a namespace that ended with its supervisor, until the kernel removes it
                        netlink.delete(name)
                step = "network"
                _new_namespace(_NEW_NETWORK)
                step = "name"
                _new_namespace(_NEW_NAME)
                # The host name is the address, so that a lookup of the own name gives the address that peers use.
                socket.sethostname(host)
                step = "veth"
                own = _own("net")
                netlink.add_veth(name, bridge, end=OWN_END, namespace=own)
                with Netlink() as inside:
                    inside.set_up(_LOOPBACK)
                    end = socket.if_nametoindex(OWN_END)
                    inside.set_up(end)
                    inside.add_address(end, host, NETWORK_BITS)
                _send(answer, [own, _own("uts")])
        answer.send(b"whole")
    except OSError as error:
        with suppress(OSError):  # the supervisor has ended
            answer.send(f"{step} {error.errno}".encode())


def _new_namespace(kind: int) -> None:
    """Move this process to a new namespace of this kind; Python has `os.unshare` only from 3.12 on."""
    if ctypes.CDLL(None, use_errno=True).unshare(kind):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _own(kind: str) -> int:
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _send(answer: socket.socket, descriptors: Sequence[int]) -> None:
    socket.send_fds(answer, [b"descriptors"], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
