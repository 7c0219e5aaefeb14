"""The keeper of one replica: starts it, outlives it, and leaves its traces on disk.

A keeper lives in a session of its own, so that no signal meant for the replica's group reaches it, and is the
subreaper of everything the replica starts. Its trace is one file that it holds locked: a line when the process
is about to become the replica, a line with how that ended. Unlocked and without the second line, nobody saw the
end. It leaves only when nothing of the replica is alive.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

LEFTOVER_GRACE_SECONDS = 1.0

_PR_SET_CHILD_SUBREAPER = 36
_OWN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


def now() -> float:
    """Seconds of a clock that never goes back, counts sleep, and is the same in every process until the next boot."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def become_subreaper() -> None:
    """Adopt every orphan among our descendants, where the system can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def keep(
    trace: int,
    log: int,
    news: int,
    *,
    name: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    workdir: str,
    held: Sequence[int] = (),
    file_limits: tuple[int, int] | None = None,
) -> NoReturn:
    """Run one replica and never return. Called in a fresh fork; `trace` is open and already locked.

    `news` is a pipe: one line with the name and pid when the process is about to become the replica. The
    descriptors in `held` stay open for as long as the keeper lives: claims, which end with the replica. A
    supervisor that raised its own limit of open files says in `file_limits` what the replica is to have.
    """
    os.setsid()
    _close_all_but(trace, log, news, *held)
    _write_line(trace, {"keeper": os.getpid()})
    for number in _OWN_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    become_subreaper()
    if file_limits:
        resource.setrlimit(resource.RLIMIT_NOFILE, file_limits)
    pid = os.fork()
    if pid == 0:
        _become_replica(trace, log, news, name=name, argv=argv, env=env, workdir=workdir)
    os.close(log)
    os.close(news)
    status = _wait_for(pid)
    _write_line(trace, {"code": _code(status), "signal": _signal(status), "at": now()})
    _end_leftovers(gently=_signal(status) != signal.SIGKILL)
    os._exit(0)


def _become_replica(
    trace: int, log: int, news: int, *, name: str, argv: Sequence[str], env: Mapping[str, str], workdir: str
) -> NoReturn:
    try:
        os.setsid()
        for number in _OWN_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        pid = os.getpid()
        _write_line(trace, {"pid": pid, "ticks": start_ticks(pid)})
        os.write(news, f"{name} {pid}\n".encode())
        try:
            os.chdir(workdir)
        except OSError as error:
            _write(log, f"drumline: cannot work in {workdir}: {error.strerror}\n".encode())
            os._exit(126)
        try:
            os.execvpe(argv[0], list(argv), dict(env))
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            reason = "no such command" if missing else error.strerror
            _write(log, f"drumline: cannot run {argv[0]}: {reason}\n".encode())
            os._exit(127 if missing else 126)
    finally:
        os._exit(125)


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since boot: with the pid and the boot it names a process for good."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123
            return int(stat.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _wait_for(pid: int) -> int:
    """Reap whatever ends until it is this process; return its wait status."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return status


def _end_leftovers(*, gently: bool) -> None:
    """End what the replica left behind, in whatever session it hides; return when nothing is alive."""
    deadline = now() + (LEFTOVER_GRACE_SECONDS if gently else 0.0)
    asked: set[int] = set()
    pause = 0.001
    while True:
        if not _reap():
            return
        harsh = now() >= deadline
        for pid in descendants(os.getpid()):
            if harsh or pid not in asked:
                asked.add(pid)
                _signal_process(pid, signal.SIGKILL if harsh else signal.SIGTERM)
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def _reap() -> bool:
    """Reap everything that has ended; say whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def descendants(root: int) -> list[int]:
    """Every process below this one, parents first."""
    found: list[int] = []
    waiting = [root]
    while waiting:
        for child in _children(waiting.pop()):
            found.append(child)
            waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{task}/children", "rb") as listing:  # noqa: PTH123
                children.extend(int(child) for child in listing.read().split())
    except (OSError, ValueError):
        pass  # it has just ended
    return children


def _signal_process(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _close_all_but(*kept: int) -> None:
    """Close every descriptor that the fork brought along, so that locks and sockets are their owner's alone."""
    for low, high in zip((2, *sorted(kept)), (*sorted(kept), 65536), strict=True):
        if high - low > 1:
            os.closerange(low + 1, high)


def _code(status: int) -> int | None:
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None


def _signal(status: int) -> int | None:
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None


def _write_line(descriptor: int, data: Mapping[str, object]) -> None:
    _write(descriptor, json.dumps(data).encode() + b"\n")


def _write(descriptor: int, data: bytes) -> None:
    with suppress(OSError):  # a full disk must not keep the replica from running, nor its keeper from leaving
        os.write(descriptor, data)
