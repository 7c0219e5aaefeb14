"""The fork server: forks a keeper for each order of one supervisor.

A process with an event loop is never forked. The fork server is a fresh interpreter with one thread and one end of a
socket pair, and has no state between two orders. It ends when the other end is closed; keepers run on.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from drumline.runtime import keeper, order, unix

# The names of the fork server and of keepers for the kernel and `ps -o comm`; their command lines are the same.
NAME, KEEPER_NAME = "drumline-forks", "drumline-keeper"


def serve(connection: socket.socket) -> None:
    """Carry out orders until the supervisor closes its end of the connection."""
    while True:
        try:
            request, descriptors = unix.receive_request(connection, order.MOST_DESCRIPTORS)
            try:
                answer = order.fork_keeper(request, descriptors, release=connection.close, keep=_keep)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            connection.sendall(json.dumps(answer).encode() + b"\n")
        except (OSError, *order.MALFORMED):
            return


def _keep(given: order.Order, descriptors: order.Descriptors, _: Mapping[str, Any]) -> None:
    _rename(KEEPER_NAME)
    keeper.keep(given, descriptors)


def _rename(name: str) -> None:
    with suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as comm:  # noqa: PTH123
        comm.write(name)


def main(descriptor: str) -> None:
    """Serve on the socket with this descriptor."""
    os.chdir("/")
    _rename(NAME)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the supervisor watches keepers; this process reaps none
    gc.disable()
    gc.freeze()  # a collection in a keeper would copy the shared memory
    serve(socket.socket(fileno=int(descriptor)))
