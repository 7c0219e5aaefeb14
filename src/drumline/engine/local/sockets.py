"""The ports on which replicas listen and the addresses to which they are connected, each in its own network."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress

from drumline.engine.local.activity import find_trees
from drumline.engine.local.proc import PROC, TcpSocket, read_stats, read_tcp
from drumline.run.incarnation import Incarnation
from drumline.run.rendezvous import Sockets


def read_sockets(keepers: Mapping[Incarnation, int]) -> Iterator[Sockets]:
    """Yield the sockets of each replica: those of all processes below its keeper."""
    networks: dict[str, dict[str, TcpSocket]] = {}
    for which, tree in find_trees(keepers, read_stats()).items():
        own = [found for stat in tree for found in _sockets_of(stat.pid, networks)]
        listening = frozenset(each.port for each in own if each.is_listening)
        yield Sockets(which.replica, listening, frozenset(_address(each.remote) for each in own if each.is_connected))


def _sockets_of(pid: int, networks: dict[str, dict[str, TcpSocket]]) -> Iterator[TcpSocket]:
    folder = f"{PROC}/{pid}/fd"
    with suppress(OSError):  # it has just ended
        network = os.readlink(f"{PROC}/{pid}/ns/net")  # noqa: PTH115
        if network not in networks:
            networks[network] = {each.name: each for each in read_tcp(pid)}
        for entry in os.listdir(folder):  # noqa: PTH208
            with suppress(OSError):
                found = networks[network].get(os.readlink(f"{folder}/{entry}"))  # noqa: PTH115
                if found:
                    yield found


def _address(text: str) -> str:
    """Return `0100007F:4E21` as `127.0.0.1:20001`; each 32 bits of an address have this machine's byte order."""
    host, _, port = text.rpartition(":")
    packed = b"".join(struct.pack("=I", int(host[at : at + 8], 16)) for at in range(0, len(host), 8))
    if len(packed) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, packed)}:{int(port, 16)}"
    if packed[:12] == b"\0" * 10 + b"\xff\xff":
        return f"{socket.inet_ntop(socket.AF_INET, packed[12:])}:{int(port, 16)}"
    return f"[{socket.inet_ntop(socket.AF_INET6, packed)}]:{int(port, 16)}"
