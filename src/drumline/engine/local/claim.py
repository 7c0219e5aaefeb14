"""Ports, claimed: nobody else on this machine is given one while a replica may still bind it.

A claim is two sockets. An abstract one, named after the port, keeps other drumlines away, whoever runs them. A
bound one that does not listen keeps the kernel and everybody else away, yet lets the replica's server bind over
it, since servers set SO_REUSEADDR or SO_REUSEPORT. Both are handed to the replica's keeper, and so end with it.
"""

from __future__ import annotations

import errno
import socket
import sys

from drumline.errors import EngineError
from drumline.plan.types import Launch, ReplicaId


class PortClaim:
    """A port that is ours until `close`."""

    def __init__(self, port: int, sockets: tuple[socket.socket, ...]) -> None:
        self.port = port
        self._sockets = sockets

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a keeper must hold to keep the claim."""
        return tuple(each.fileno() for each in self._sockets)

    def close(self) -> None:
        """Let go of our copies."""
        for each in self._sockets:
            each.close()


class Ports:
    """The claims of one run: those of a placement until its line is started, and after that of who may return."""

    def __init__(self) -> None:
        self._placed: dict[ReplicaId, PortClaim] = {}
        self._kept: dict[ReplicaId, PortClaim] = {}

    def take(self, claims: dict[ReplicaId, PortClaim]) -> None:
        """Hold the claims of a new placement; those of the one before are not needed any more."""
        self.release()
        self._placed = claims

    def descriptors(self, launch: Launch) -> tuple[int, ...]:
        """What a replica's keeper must hold to keep its port; who returns gets the port that it had.

        One whose claim died with an earlier supervisor is claimed again, if nobody else was quicker.
        """
        replica = launch.replica
        claim = self._placed.get(replica.id) or (self._kept.get(replica.id) if launch.incarnation else None)
        if claim is None and launch.incarnation and replica.port is None:
            claim = claim_port(launch.place.port)
            if claim:
                self._kept[replica.id] = claim
        return claim.descriptors if claim else ()

    def keep(self) -> None:
        """Hold the claims of the placement on when its line is started."""
        self._kept |= self._placed
        self._placed = {}

    def close(self) -> None:
        """Let go of what no start took over; whoever was started keeps its own."""
        for claim in self._placed.values():
            claim.close()
        self._placed = {}

    def release(self) -> None:
        """Let go of everything."""
        self.close()
        for claim in self._kept.values():
            claim.close()
        self._kept = {}


def claim_port(port: int) -> PortClaim | None:
    """Claim a port; None if it is taken. Raise EngineError if there are no descriptors left for claims."""
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
            raise OSError(errno.EADDRINUSE, "somebody listens there")
        held.bind(("", port))
    except OSError:
        name.close()
        held.close()
        return None
    return PortClaim(port, (name, held))


def _is_served(port: int) -> bool:
    """Whether a server has the port: only a strict bind sees those that, like ours, allow others beside them."""
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
