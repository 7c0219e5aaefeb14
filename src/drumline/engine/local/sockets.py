"""On which ports the lives on this machine listen, and whom they have called; each in the network it sees."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress

from drumline.engine.incarnation import Incarnation
from drumline.engine.local.proc import PROC, read_stats
from drumline.engine.local.pulse import find_trees
from drumline.record import Record
from drumline.run.rendezvous import Sockets

_CONNECTED, _LISTENS = "01", "0A"


class _Socket(Record):
    """A TCP socket: its port if it listens, else where it leads."""

    port: int | None = None
    peer: str = ""


def read_sockets(keepers: Mapping[Incarnation, int]) -> Iterator[Sockets]:
    """Look at the sockets of everybody below these keepers once."""
    networks: dict[str, dict[str, _Socket]] = {}
    for life, tree in find_trees(keepers, read_stats()).items():
        own = [found for stat in tree for found in _sockets_of(stat.pid, networks)]
        listening = frozenset(each.port for each in own if each.port is not None)
        yield Sockets(life.replica, listening, frozenset(each.peer for each in own if each.peer))


def _sockets_of(pid: int, networks: dict[str, dict[str, _Socket]]) -> Iterator[_Socket]:
    folder = f"{PROC}/{pid}/fd"
    with suppress(OSError):  # it has just ended
        network = os.readlink(f"{PROC}/{pid}/ns/net")  # noqa: PTH115
        if network not in networks:
            networks[network] = dict(_read_network(pid))
        for entry in os.listdir(folder):  # noqa: PTH208
            with suppress(OSError):
                found = networks[network].get(os.readlink(f"{folder}/{entry}"))  # noqa: PTH115
                if found:
                    yield found


def _read_network(pid: int) -> Iterator[tuple[str, _Socket]]:
    """Every TCP socket in the network of a process, by the name that descriptors lead to."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError), open(f"{PROC}/{pid}/net/{table}", encoding="ascii") as file:  # noqa: PTH123
            for line in file.readlines()[1:]:
                _, here, there, state, *_, inode = line.split()[:10]
                if state == _LISTENS:
                    yield f"socket:[{inode}]", _Socket(port=int(here.rpartition(":")[2], 16))
                elif state == _CONNECTED:
                    yield f"socket:[{inode}]", _Socket(peer=_address(there))


def _address(text: str) -> str:
    """`0100007F:4E21` as `127.0.0.1:20001`; words of an address are in the order of this machine."""
    host, _, port = text.rpartition(":")
    packed = b"".join(struct.pack("=I", int(host[at : at + 8], 16)) for at in range(0, len(host), 8))
    if len(packed) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, packed)}:{int(port, 16)}"
    if packed[:12] == b"\0" * 10 + b"\xff\xff":
        return f"{socket.inet_ntop(socket.AF_INET, packed[12:])}:{int(port, 16)}"
    return f"[{socket.inet_ntop(socket.AF_INET6, packed)}]:{int(port, 16)}"
