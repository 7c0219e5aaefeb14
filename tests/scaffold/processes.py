"""Processes of this machine, as the kernel tells of them."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from drumline.runtime.lock import is_locked
from scaffold.waiting import wait_until


def read_to(command: subprocess.Popen[str], words: str) -> str:
    """What a command prints up to the line with these words, which has to come."""
    assert command.stdout
    shown = ""
    while words not in shown:
        line = command.stdout.readline()
        assert line, f"{words!r} never came: {shown}"
        shown += line
    return shown


def lock_holder(path: Path) -> int | None:
    """Return the process that holds the writer's lock of this file, by the kernel's list."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    name = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    while True:
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if "->" not in words and words[3] == "WRITE" and words[5] == name:
                return int(words[4])
        if not is_locked(path):  # a list that changes while it is read may be incomplete
            return None


def kill_and_wait(*pids: int) -> None:
    """KILL processes and wait until they are gone."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids)))


def pids() -> list[int]:
    """All processes of this machine."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def name_of(pid: int) -> str:
    """What a living process is called; nothing for one that has ended."""
    try:
        _, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    return "" if rest.split()[0] in "ZX" else words[:200] or "?"


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    return bool(name_of(pid))
