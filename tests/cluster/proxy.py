"""A cable between drumline and the API server that a test can cut: the server goes on, and nobody can reach it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


class Cable:
    """Passes bytes on between a port of this machine and a server, while it is whole."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.port = 0
        self._listener: socket.socket | None = None
        self.mend()

    def mend(self) -> None:
        """Let everybody through, from now on."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Let nobody through any more, and hang up on everybody."""
        if self._listener:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._server)
                with self._lock:
                    self._ends |= {near, far}
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def cable(kubeconfig: str, folder: Path) -> Iterator[tuple[Cable, str]]:
    """A cable to the server of a kubeconfig, and a kubeconfig that goes through it."""
    data: dict[str, Any] = yaml.safe_load(Path(kubeconfig).read_text())
    (named,) = [each for each in data["contexts"] if each["name"] == data["current-context"]]
    (entry,) = [each for each in data["clusters"] if each["name"] == named["context"]["cluster"]]
    url = urlsplit(entry["cluster"]["server"])
    line = Cable((url.hostname or "", url.port or 443))
    entry["cluster"] = {"server": f"https://127.0.0.1:{line.port}", "insecure-skip-tls-verify": True}
    through = folder / "through.conf"
    through.write_text(json.dumps(data))
    try:
        yield line, str(through)
    finally:
        line.cut()
