"""The warm processes of a home: what each has, and how to end it."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from drumline.engine.local.proc import proportional_bytes
from drumline.engine.local.warm.client import warm_folder
from drumline.runtime.unix import connect, peer_of, send_request

_PATIENCE_SECONDS = 5.0


class Known(NamedTuple):
    """A warm process: its interpreter, what it has imported, since when, and for how many it did so."""

    key: str
    pid: int
    framework: str
    modules: tuple[str, ...]  # besides the framework
    python: str
    began: float  # seconds since 1970
    replicas: int  # that were forked from it
    runs: int  # that use it now
    keep_seconds: float
    unfit: str  # why nobody is forked from it
    memory_bytes: int | None


def known_warm_processes(home: Path) -> Iterator[Known]:
    """Everybody who answers; one that is still importing has nothing to say yet."""
    for folder in _folders(home):
        with _reach(folder) as connection:
            said = connection and _ask(connection, "status")
            if said:
                yield Known(
                    folder.name,
                    said["pid"],
                    said["framework"],
                    tuple(said.get("modules", ())),  # one that an older drumline began does not say
                    said["python"],
                    said["began"],
                    said["replicas"],
                    said["runs"],
                    said["keep"],
                    said["unfit"],
                    proportional_bytes(said["pid"]),
                )


def stop_warm_processes(home: Path, *keys: str) -> int:
    """End these, or all, and return how many there were when they are gone; no replica ends with them."""
    ended = 0
    for folder in _folders(home):
        if keys and folder.name not in keys:
            continue
        with _reach(folder) as connection:
            if connection:
                ended += _end(connection)
        shutil.rmtree(folder, ignore_errors=True)
    return ended


def _folders(home: Path) -> list[Path]:
    try:
        return sorted(warm_folder(home).iterdir())
    except OSError:
        return []


class _reach:  # noqa: N801
    """A connection to whoever listens in a folder, for a while."""

    def __init__(self, folder: Path) -> None:
        self._connection = connect(folder / "socket")

    def __enter__(self) -> socket.socket | None:
        return self._connection

    def __exit__(self, *_: object) -> None:
        if self._connection:
            self._connection.close()


def _ask(connection: socket.socket, what: str) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        connection.settimeout(_PATIENCE_SECONDS)
        send_request(connection, {"do": what})
        answer: dict[str, Any] = json.loads(connection.makefile("rb").readline())
        return answer
    return None


def _end(connection: socket.socket) -> bool:
    """End whoever is at the other end: by asking, and by force if it does not hear."""
    pid = peer_of(connection).pid
    if pid == os.getpid():
        return False  # we have just begun it, and it has not come so far
    with suppress(ProcessLookupError, PermissionError):
        gone = os.pidfd_open(pid)
        try:
            if _ask(connection, "stop") is None:
                os.kill(pid, 9)
            select.select([gone], [], [], _PATIENCE_SECONDS)
            return True
        finally:
            os.close(gone)
    return False
