"""List and stop the warm processes of a home."""

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

_ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 0.005
# For a warm process without a `ready` file: it is importing and does not answer, or it is of an older drumline.
_PREPARING_SECONDS = 0.2


class LocalWarmPool:
    """The warm processes of a home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def processes(self) -> Sequence[WarmProcess]:
        """Return all warm processes, including those that are still importing."""
        return tuple(list_warm_processes(self._home))

    def stop(self, keys: Sequence[str]) -> int:
        """Stop the warm processes with these keys, or all; return how many have ended. Replicas run on."""
        return stop_warm_processes(self._home, *keys)


def list_warm_processes(home: Path) -> Iterator[WarmProcess]:
    """Yield the warm processes of a home, including those that are still importing."""
    for folder in _folders(home):
        with connect(folder / "socket") or nullcontext() as connection:
            status = connection and _ask(connection, "status", folder)
            if connection and not status and (preparing := _read_preparing(folder, peer_of(connection).pid)):
                yield preparing
            if status:
                yield WarmProcess(
                    folder.name,
                    status["pid"],
                    status["framework"],
                    tuple(status.get("modules", ())),  # missing from a process of an older drumline
                    status["python"],
                    status["began"],
                    status["replicas"],
                    status["runs"],
                    status["keep"],
                    status["unfit"],
                    proportional_bytes(status["pid"]),
                )


def stop_warm_processes(home: Path, *keys: str) -> int:
    """Stop the warm processes with these keys, or all; return how many have ended. Replicas run on."""
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


def _ask(connection: socket.socket, action: str, folder: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        connection.settimeout(_ANSWER_SECONDS if serves(folder) else _PREPARING_SECONDS)
        send_request(connection, {"do": action})
        answer: dict[str, Any] = json.loads(connection.makefile("rb").readline())
        return answer
    return None


def _read_preparing(folder: Path, pid: int) -> WarmProcess | None:
    """Read a warm process that is still importing from its command line; None if it has not started yet."""
    words = _words(pid)
    at = _folder_index(words, folder)
    if at is None:
        return None
    framework, _, *modules = words[at + 1 :]
    began, memory = time.time(), proportional_bytes(pid)
    with suppress(OSError):
        began = Path(f"/proc/{pid}").stat().st_mtime
    return WarmProcess(folder.name, pid, framework, tuple(modules), words[0], began, 0, 0, 0.0, "", memory, ready=False)


def _words(pid: int) -> list[str]:
    """Return the command line of a process; empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="surrogateescape").split("\0")[:-1]
    return []


def _folder_index(words: Sequence[str], folder: Path) -> int | None:
    """Return which word of a command line names this folder, by its key: the path may lead through another link."""
    return next((number for number, word in enumerate(words) if word.endswith(f"/{folder.name}")), None)


def _end(folder: Path) -> bool:
    """Stop the warm process of a folder: by a request, or by KILL if it does not answer; return whether there was one.

    While a supervisor is starting it, the socket belongs to the supervisor; wait until the warm process has it.
    """
    deadline = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < deadline:
        with connect(folder / "socket") or nullcontext() as connection:
            if connection is None:
                return False
            pid = peer_of(connection).pid
            if _folder_index(_words(pid), folder) is not None:
                return _end_process(connection, pid, folder)
            if pid == os.getpid():
                return False
        time.sleep(_PAUSE_SECONDS)
    return False


def _end_process(connection: socket.socket, pid: int, folder: Path) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        ended = os.pidfd_open(pid)
        try:
            if _ask(connection, "stop", folder) is None:
                os.kill(pid, 9)
            select.select([ended], [], [], _ANSWER_SECONDS)
            return True
        finally:
            os.close(ended)
    return False
