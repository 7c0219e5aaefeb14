"""Claimed ports: while a process holds the claim, no other process of this machine gets the port by accident.

A claim is two sockets. An abstract one, named after the port, prevents claims by other drumline processes of any user.
One that is bound to the port and does not listen prevents its use by the kernel and other programs; the server for
which the port was claimed can still bind it, since servers set SO_REUSEADDR or SO_REUSEPORT. That process can inherit
both sockets.
"""

from __future__ import annotations

import errno
import socket
import sys

from drumline.errors import EngineError


class PortClaim:
    """A claimed port; the claim ends when all processes that have its descriptors have closed them."""

    def __init__(self, port: int, sockets: tuple[socket.socket, ...]) -> None:
        self.port = port
        self._sockets = sockets

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that hold the claim."""
        return tuple(each.fileno() for each in self._sockets)

    def close(self) -> None:
        """Close this process's descriptors of the claim."""
        for each in self._sockets:
            each.close()


def claim_port(port: int) -> PortClaim | None:
    """Claim a port; return None if it is taken. Raise EngineError if this process cannot open more descriptors."""
    try:
        name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise EngineError(
            f"no port can be claimed: {error.strerror}", hint="`ulimit -Hn` says how many files you may have open"
        ) from None
    try:
        if sys.platform == "linux":
            name.bind(f"\0drumline-port-{port}")
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):  # a server may set either, or both as gRPC does
            held.setsockopt(socket.SOL_SOCKET, option, 1)
        if _is_served(port):
            raise OSError(errno.EADDRINUSE, "a server listens there")
        held.bind(("", port))
    except OSError:
        name.close()
        held.close()
        return None
    return PortClaim(port, (name, held))


def _is_served(port: int) -> bool:
    """Return whether a server has the port.

    It is found by a bind without options, which fails even for servers that allow others to share their port.
    """
    for family, address in ((socket.AF_INET, ""), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
    return False
