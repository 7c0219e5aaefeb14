"""Configure network interfaces and addresses by netlink messages, since not every machine has the program `ip`."""

from __future__ import annotations

import os
import socket
import struct
from types import TracebackType
from typing import Self

# linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/veth.h
_REQUEST, _ACKNOWLEDGE, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_ERROR = 2
_NEW_LINK, _DELETE_LINK, _NEW_ADDRESS = 16, 17, 20
_LINK_NAME, _LINK_MASTER, _LINK_INFO, _LINK_NAMESPACE = 3, 10, 18, 28
_INFO_KIND, _INFO_DATA = 1, 2
_VETH_PEER = 1
_ADDRESS, _LOCAL_ADDRESS = 1, 2
_UP = 1  # IFF_UP

_MESSAGE = struct.Struct("=IHHII")  # length, type, flags, number, sender
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, which of them to change
_FAMILY_ADDRESS = struct.Struct("=BBBBI")  # family, bits of the network, flags, scope, index of the link
_ATTRIBUTE = struct.Struct("=HH")  # length, type


class Netlink:
    """A netlink socket for the network namespace in which it was opened, also after the process has left that."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._socket.close()

    def set_up(self, index: int, *, up: bool = True) -> None:
        """Set a link up or down."""
        self._ask(_NEW_LINK, 0, _LINK.pack(0, 0, index, _UP if up else 0, _UP))

    def add_bridge(self, name: str) -> None:
        """Add a bridge that is up."""
        info = attribute(_LINK_INFO, attribute(_INFO_KIND, b"bridge"))
        self._ask(_NEW_LINK, _CREATE | _EXCLUSIVE, _LINK.pack(0, 0, 0, _UP, _UP) + _named(name) + info)

    def add_veth(self, name: str, bridge: int, *, end: str, namespace: int) -> None:
        """Add a veth pair: one link in the bridge of this index, up; its peer `end` in another namespace, down."""
        up = _LINK.pack(0, 0, 0, _UP, _UP)
        peer = _LINK.pack(0, 0, 0, 0, 0) + _named(end) + attribute(_LINK_NAMESPACE, struct.pack("=I", namespace))
        kind = attribute(_INFO_KIND, b"veth") + attribute(_INFO_DATA, attribute(_VETH_PEER, peer))
        master = attribute(_LINK_MASTER, struct.pack("=I", bridge))
        self._ask(_NEW_LINK, _CREATE | _EXCLUSIVE, up + _named(name) + master + attribute(_LINK_INFO, kind))

    def delete(self, name: str) -> None:
        """Delete a link and its peer."""
        self._ask(_DELETE_LINK, 0, _LINK.pack(0, 0, 0, 0, 0) + _named(name))

    def add_address(self, index: int, address: str, bits: int) -> None:
        """Add an IPv4 address to the link with this index; its network prefix has `bits` bits."""
        number = socket.inet_aton(address)
        head = _FAMILY_ADDRESS.pack(socket.AF_INET, bits, 0, 0, index)
        both = attribute(_LOCAL_ADDRESS, number) + attribute(_ADDRESS, number)
        self._ask(_NEW_ADDRESS, _CREATE | _EXCLUSIVE, head + both)

    def _ask(self, kind: int, flags: int, body: bytes) -> None:
        """Send a request and wait for the acknowledgement; raise OSError if the kernel refuses."""
        self._sent += 1
        length = _MESSAGE.size + len(body)
        self._socket.send(_MESSAGE.pack(length, kind, _REQUEST | _ACKNOWLEDGE | flags, self._sent, 0) + body)
        answer = self._socket.recv(65536)
        _, kind, _, number, _ = _MESSAGE.unpack_from(answer)
        (code,) = struct.unpack_from("=i", answer, _MESSAGE.size)
        if kind != _ERROR or number != self._sent:
            raise OSError(f"unexpected netlink answer: message {number} of type {kind}")
        if code:
            raise OSError(-code, os.strerror(-code))


def attribute(kind: int, value: bytes) -> bytes:
    """Return an attribute of a message, padded to a multiple of four bytes."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _named(name: str) -> bytes:
    return attribute(_LINK_NAME, name.encode() + b"\0")
