"""Processes of this machine, read from /proc."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from drumline.runtime.lock import is_locked
from scaffold.waiting import wait_until


def read_to(command: subprocess.Popen[str], words: str) -> str:
    """Return the output of a command up to a line with these words; fail if there is no such line."""
    assert command.stdout
    shown = ""
    while words not in shown:
        line = command.stdout.readline()
        assert line, f"{words!r} never came: {shown}"
        shown += line
    return shown


def lock_holder(path: Path) -> int | None:
    """Return the pid of the process that holds the write lock of this file, from /proc/locks."""
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
    """Send KILL to processes and wait until they have ended."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids)))


def pids() -> list[int]:
    """Return the pids of all processes of this machine."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def name_of(pid: int) -> str:
    """Return the name of a running process; empty if it has ended."""
    try:
        _, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    return "" if rest.split()[0] in "ZX" else words[:200] or "?"


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    return bool(name_of(pid))
