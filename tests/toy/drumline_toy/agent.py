"""The toy's agent: one process per run that starts replicas, kills them, and records what happened.

`orders.jsonl` is written by engines and `events.jsonl` by the agent. It holds `lock` while it runs, carries out every
order once, also if another agent has begun it, and exits when no replica runs and no order is left.
Standard library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

ORDERS, EVENTS, LOCK = "orders.jsonl", "events.jsonl", "lock"
MARK = "DRUMLINE_TOY"  # a variable of every process of a replica: its folder
PAUSE_SECONDS = 0.01
_SUBREAPER, _DEATH_SIGNAL = 36, 1
_LIBC = ctypes.CDLL(None)


def now() -> float:
    """Return the time by the clock of all supervisors."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_lines(path: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Return the complete lines of a file from an offset on, and the offset after them."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            whole, newline, _ = file.read().rpartition(b"\n")
    except FileNotFoundError:
        return [], offset
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole) + len(newline)


def append(path: Path, line: dict[str, Any]) -> None:
    """Append a line by one write."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


class Agent:
    """Carries out the orders of one run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offset = 0
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._kill_at: dict[str, float] = {}
        recorded, _ = read_lines(folder / EVENTS, 0)
        self._known = {each["folder"] for each in recorded}
        for lost in sorted(self._known - {each["folder"] for each in recorded if each["event"] == "ended"}):
            self._record("ended", lost, message="the agent was killed", at=now())

    def work(self) -> None:
        """Carry out orders until no replica runs and no order is left."""
        while True:
            orders, self._offset = read_lines(self._folder / ORDERS, self._offset)
            for order in orders:
                self._start(order) if order["do"] == "start" else self._stop(order)
            self._reap()
            for folder, at in list(self._kill_at.items()):
                if at <= now():
                    self._kill(folder)
            if not orders and not self._running:
                return
            time.sleep(PAUSE_SECONDS)

    def _start(self, order: dict[str, Any]) -> None:
        folder = order["folder"]
        if folder in self._known:
            return
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        with (path / "log").open("ab") as log:
            try:
                self._running[folder] = subprocess.Popen(
                    order["argv"],
                    cwd=order["workdir"],
                    env={**os.environ, **{name: _value(each) for name, each in order["env"].items()}, MARK: folder},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=lambda: _become(order["nice"]),  # noqa: PLW1509 - the agent has one thread
                )
                self._record("started", folder)
            except OSError as error:
                log.write(f"{order['argv'][0]}: {error.strerror}\n".encode())
                self._record("started", folder)
                self._record("ended", folder, code=127, at=now())

    def _stop(self, order: dict[str, Any]) -> None:
        folder = order["folder"]
        if folder in self._running:
            if order["grace_seconds"] > 0 and folder not in self._kill_at:
                with suppress(ProcessLookupError):
                    os.killpg(self._running[folder].pid, signal.SIGTERM)
            at = now() + order["grace_seconds"]
            self._kill_at[folder] = min(self._kill_at.get(folder, at), at)
        elif folder not in self._known:
            self._record("ended", folder, message="it was never started", at=now())

    def _kill(self, folder: str) -> None:
        for pid in marked(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Record the ends of replicas, when all their processes are gone."""
        for folder, process in list(self._running.items()):
            with suppress(ChildProcessError):
                done = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if done is None:
                    continue
            at, code = now(), process.wait()
            while marked(folder):
                self._kill(folder)
                time.sleep(PAUSE_SECONDS)
            del self._running[folder]
            self._kill_at.pop(folder, None)
            how = {"signal": -code} if code < 0 else {"code": code}
            self._record("ended", folder, at=at, **how)
        with suppress(ChildProcessError):  # orphans of replicas
            pids = {process.pid for process in self._running.values()}
            while (other := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and other.si_pid not in pids:
                os.waitpid(other.si_pid, 0)

    def _record(self, event: str, folder: str, **more: Any) -> None:
        self._known.add(folder)
        append(self._folder / EVENTS, {"event": event, "folder": folder, **more})


def marked(folder: str, *, within: bool = False) -> list[int]:
    """Return the processes of the replica with this folder, or of all with folders `within` it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            marks = [each for each in path.read_bytes().split(b"\0") if each.startswith(f"{MARK}={folder}".encode())]
            if marks and (within or marks == [f"{MARK}={folder}".encode()]):
                found.append(int(path.parent.name))
    return found


def _value(value: Any) -> str:
    """Return the value of a variable; secrets are not in orders, but in the agent's environment."""
    if isinstance(value, str):
        return value
    if "secret" in value:
        return os.environ[value["secret"]]
    present = (os.environ.get(name, "") for name in value["variables"])
    return str(value["separator"].join([value["text"], *filter(None, present)]))


def _become(nice: int) -> None:
    _LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    os.nice(nice)


def main(folder: Path) -> None:
    """Run the agent of a run, unless there is one."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)
        Agent(folder).work()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
