"""A child of the supervisor that looks at the GPUs: NVML takes more memory than that, has threads, and may hang."""

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

OLDEST_SECONDS = 60.0  # an answer that is older says nothing any more
_LONGEST_ANSWER = 1 << 20

NVML = "drumline.engine.local.nvml"


class GpuPoller:
    """Asks a child for the state of all devices; owns it and the line to it. Asking never waits.

    In the child `open_reader` of a module returns what reads the devices.
    """

    def __init__(self, loop: AbstractEventLoop, module: str = NVML) -> None:
        self._loop = loop
        self._heard = b""
        self._devices: list[Device] = []
        self._at = 0.0
        self._waiting = False
        self._line: socket.socket | None
        self._line, other = socket.socketpair()
        with other, suppress(OSError):  # without a child nothing is known
            start_python(__name__, str(other.fileno()), module, descriptors=[other.fileno()]).returncode = 0
        self._line.setblocking(False)
        loop.add_reader(self._line.fileno(), self._hear)

    def poll(self) -> list[Device]:
        """Ask for a new look, unless one is under way; return what the last one saw, nothing if that is long ago."""
        if self._line and not self._waiting:
            with suppress(OSError):
                self._line.send(b"?")
                self._waiting = True
        return self._devices if now() - self._at < OLDEST_SECONDS else []

    def close(self) -> None:
        """Hang up: the child leaves."""
        if self._line:
            self._loop.remove_reader(self._line.fileno())
            self._line.close()
            self._line = None

    def _hear(self) -> None:
        if self._line is None:
            return
        try:
            data = self._line.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self._heard) > _LONGEST_ANSWER:
            self.close()  # it could not open NVML, or was killed
            return
        *answers, self._heard = (self._heard + data).split(b"\n")
        for answer in answers:
            self._devices, self._at, self._waiting = parse_devices(answer), now(), False


def parse_devices(answer: bytes) -> list[Device]:
    """Read devices back from JSON, in which processes have become text."""
    found: list[Any] = json.loads(answer)
    return [
        Device(**{**each, "memory": _by_process(each["memory"]), "shares": _by_process(each["shares"])})
        for each in found
    ]


def _by_process(numbers: dict[str, Any] | None) -> dict[int, Any] | None:
    return None if numbers is None else {int(pid): number for pid, number in numbers.items()}


def main(descriptor: str, module: str) -> None:
    """Answer each question until the supervisor is gone; end at once if there is nothing to look at."""
    end_with_parent()  # NVML may never return
    line = int(descriptor)
    try:
        read = import_module(module).open_reader()
    except Exception:  # noqa: BLE001 - whatever a driver may raise
        return
    with suppress(ConnectionError):  # nothing waits for the answer
        while os.read(line, 64):
            _write(line, json.dumps([to_dict(each) for each in read()]).encode() + b"\n")


def _write(line: int, data: bytes) -> None:
    while data:
        data = data[os.write(line, data) :]
