"""A child process that reads the GPUs for the supervisor: NVML needs much memory, starts threads, and may hang."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from drumline.engine.local.gpu_usage import Device
from drumline.record import to_dict
from drumline.runtime.child import start_python
from drumline.runtime.keeper import end_with_parent, now

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

OLDEST_SECONDS = 60.0  # an older answer is not used
_LONGEST_ANSWER = 1 << 20

NVML = "drumline.engine.local.nvml"


class GpuPoller:
    """Requests the state of all devices from a child process; owns the connection to it. `poll` never blocks.

    The child calls `open_reader` of `module`, which returns a function that reads the devices.
    """

    def __init__(self, loop: AbstractEventLoop, module: str = NVML) -> None:
        self._loop = loop
        self._unread = b""
        self._devices: list[Device] = []
        self._at = 0.0
        self._waiting = False
        self._connection: socket.socket | None
        self._connection, other = socket.socketpair()
        with other, suppress(OSError):  # without a child no device is reported
            start_python(__name__, str(other.fileno()), module, descriptors=[other.fileno()]).returncode = 0
        self._connection.setblocking(False)
        loop.add_reader(self._connection.fileno(), self._read)

    def poll(self) -> list[Device]:
        """Request new values unless a request is pending; return the last ones, or none after OLDEST_SECONDS."""
        if self._connection and not self._waiting:
            with suppress(OSError):
                self._connection.send(b"?")
                self._waiting = True
        return self._devices if now() - self._at < OLDEST_SECONDS else []

    def close(self) -> None:
        """Close the connection, which ends the child."""
        if self._connection:
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()
            self._connection = None

    def _read(self) -> None:
        if self._connection is None:
            return
        try:
            data = self._connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self._unread) > _LONGEST_ANSWER:
            self.close()  # the child could not open NVML, or was killed
            return
        *answers, self._unread = (self._unread + data).split(b"\n")
        for answer in answers:
            self._devices, self._at, self._waiting = parse_devices(answer), now(), False


def parse_devices(answer: bytes) -> list[Device]:
    """Parse devices from JSON, in which pids are strings."""
    found: list[Any] = json.loads(answer)
    return [
        Device(**{**each, "memory": _by_process(each["memory"]), "shares": _by_process(each["shares"])})
        for each in found
    ]


def _by_process(numbers: dict[str, Any] | None) -> dict[int, Any] | None:
    return None if numbers is None else {int(pid): number for pid, number in numbers.items()}


def main(descriptor: str, module: str) -> None:
    """Answer the requests of the supervisor until it closes the connection; return at once if NVML cannot be opened."""
    end_with_parent()  # NVML may never return
    connection = int(descriptor)
    try:
        read = import_module(module).open_reader()
    except Exception:  # noqa: BLE001 - whatever a driver may raise
        return
    with suppress(ConnectionError):  # the supervisor has ended
        while os.read(connection, 64):
            _write(connection, json.dumps([to_dict(each) for each in read()]).encode() + b"\n")


def _write(connection: int, data: bytes) -> None:
    while data:
        data = data[os.write(connection, data) :]
