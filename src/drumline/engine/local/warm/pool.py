"""The warm processes of a home: what each has, and how to end it."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from drumline.engine.local.proc import proportional_bytes
from drumline.engine.local.warm.client import serves, warm_folder
from drumline.engine.warm import WarmProcess
from drumline.runtime.unix import connect, peer_of, send_request

_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.005
_PREPARING_SECONDS = 0.2  # one that imports hears nothing; one of an older drumline does not say that it is ready


class LocalWarmPool:
    """The warm processes of a home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def processes(self) -> Sequence[WarmProcess]:
        """Return all, those too that are being made ready."""
        return tuple(list_warm_processes(self._home))

    def stop(self, keys: Sequence[str]) -> int:
        """End these, or all, and return how many there were; no replica ends with them."""
        return stop_warm_processes(self._home, *keys)


def list_warm_processes(home: Path) -> Iterator[WarmProcess]:
    """Yield the warm processes of a home, those too that are being made ready."""
    for folder in _folders(home):
        with connect(folder / "socket") or nullcontext() as connection:
            said = connection and _ask(connection, "status", folder)
            if connection and not said and (preparing := _read_preparing(folder, peer_of(connection).pid)):
                yield preparing
            if said:
                yield WarmProcess(
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
        ended += _end(folder)
        shutil.rmtree(folder, ignore_errors=True)
    return ended


def _folders(home: Path) -> list[Path]:
    try:
        return sorted(warm_folder(home).iterdir())
    except OSError:
        return []


def _ask(connection: socket.socket, what: str, folder: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        connection.settimeout(_PATIENCE_SECONDS if serves(folder) else _PREPARING_SECONDS)
        send_request(connection, {"do": what})
        answer: dict[str, Any] = json.loads(connection.makefile("rb").readline())
        return answer
    return None


def _read_preparing(folder: Path, pid: int) -> WarmProcess | None:
    """Return what the command line of a warm process says that imports; None if it is not there yet."""
    words = _words(pid)
    if str(folder) not in words:
        return None
    framework, _, *modules = words[words.index(str(folder)) + 1 :]
    began, memory = time.time(), proportional_bytes(pid)
    with suppress(OSError):
        began = Path(f"/proc/{pid}").stat().st_mtime
    return WarmProcess(folder.name, pid, framework, tuple(modules), words[0], began, 0, 0, 0.0, "", memory, ready=False)


def _words(pid: int) -> list[str]:
    """Return the command line of a process; nothing if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="surrogateescape").split("\0")[:-1]
    return []


def _end(folder: Path) -> bool:
    """End the warm process of a folder: by asking, and by force if it does not hear.

    One that is being begun is waited for: until then the process that begins it is at the other end.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with connect(folder / "socket") or nullcontext() as connection:
            if connection is None:
                return False
            pid = peer_of(connection).pid
            if str(folder) in _words(pid):
                return _end_process(connection, pid, folder)
            if pid == os.getpid():
                return False
        time.sleep(_PAUSE_SECONDS)
    return False


def _end_process(connection: socket.socket, pid: int, folder: Path) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        gone = os.pidfd_open(pid)
        try:
            if _ask(connection, "stop", folder) is None:
                os.kill(pid, 9)
            select.select([gone], [], [], _PATIENCE_SECONDS)
            return True
        finally:
            os.close(gone)
    return False
