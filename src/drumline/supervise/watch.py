"""Watch runs: request samples from their supervisors, and wait for new samples."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from drumline.runtime.unix import connect
from drumline.supervise.control import SAMPLED, request_watch


class Watch:
    """The connections to the supervisors of runs; while they are open, the supervisors write a sample each second."""

    def __init__(self) -> None:
        self._open: dict[Path, socket.socket] = {}

    def follow(self, sockets: Collection[Path]) -> None:
        """Watch exactly the runs with these sockets; a run without a supervisor is left out."""
        for path in self._open.keys() - set(sockets):
            self._drop(path)
        for path in sockets:
            if path not in self._open and (connection := connect(path)):
                self._open[path] = connection
                try:
                    request_watch(connection)
                except OSError:
                    self._drop(path)  # the supervisor has just exited

    def wait(self, seconds: float) -> None:
        """Return when every supervisor has reported a sample or has exited, or after the timeout."""
        deadline = time.monotonic() + seconds
        quiet = dict.fromkeys(self._open, b"")
        while quiet and (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([self._open[path] for path in quiet], [], [], left)
            for path in [path for path in quiet if self._open[path] in ready]:
                data = b""
                with suppress(OSError):
                    data = self._open[path].recv(4096)
                quiet[path] += data
                if not data:
                    self._drop(path)
                if not data or SAMPLED in quiet[path]:
                    del quiet[path]

    @property
    def is_answered(self) -> bool:
        """Return whether a supervisor is connected."""
        return bool(self._open)

    def close(self) -> None:
        """Close all connections."""
        for path in list(self._open):
            self._drop(path)

    def _drop(self, path: Path) -> None:
        self._open.pop(path).close()
