"""The keeper of one replica: starts it, outlives it, and records its exit on disk.

A keeper has its own session, so that signals to the replica's group do not reach it, and is the subreaper of all
processes that the replica starts. It holds a lock on its trace file. It writes a line when the process becomes the
replica, a line with the exit, and a last line when no process of the replica is left; then it ends. If an unlocked
trace has no exit, no keeper saw the end; if it has no last line, processes may be left. The file has its full length
before anything starts, so that a full disk loses no exit.

A keeper also starts the next supervisor of its run when the last one has died: see `SupervisorWatch`.

This module is one file and imports the standard library only: a warm process loads it by its path, in an environment
that may lack drumline.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from drumline.runtime.order import Descriptors, Lease, Order

LEFTOVER_GRACE_SECONDS = 1.0

# Files in a run's folder: one that the supervisor locks, with its pid until it ends regularly; the log of the next
# supervisor; and how often keepers started one.
SUPERVISOR_LOCK = "supervisor.lock"
SUPERVISOR_LOG = "supervisor.log"
SUPERVISOR_RETURNS = "supervisor.returns"
MOST_RETURNS = 5  # for each run
_PAUSE_SECONDS = 1.0  # before the second return, twice as long before the third

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_PARENT = 0x8000
_SYS_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220, "ppc64le": 120}
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # programs expect the default
_OWN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Process(NamedTuple):
    """A running process, its parent, and its session."""

    pid: int
    parent: int
    session: int


def now() -> float:
    """Return seconds since boot, including sleep: the same clock in every process."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def boot_id() -> str:
    """Return the id of this boot; processes of an earlier boot have ended."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:  # noqa: PTH123
            return stream.read().strip()
    except OSError:
        return ""


@cache
def _libc() -> ctypes.CDLL:
    """Return the C library, loaded once."""
    return ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Become the parent of orphaned descendants (Linux only)."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends (Linux only)."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


Become = Callable[[Sequence[str], Mapping[str, str]], None]


def keep(order: Order, descriptors: Descriptors, become: Become | None = None) -> None:
    """Run one replica in this process, a fresh fork; return only in the replica, and only if `become` returns.

    Without `become` the replica executes its command, and all inherited descriptors are closed.
    """
    is_keeper = True
    try:
        os.setsid()
        os.chdir("/")  # so that any folder can be removed
        if become is None:
            close_all_but(*descriptors.all)
        trace, log = descriptors.trace, descriptors.log
        _write_line(trace, {"keeper": os.getpid(), "boot": order.boot})
        for number in (*_OWN_SIGNALS, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        become_subreaper()
        if order.file_limits:
            resource.setrlimit(resource.RLIMIT_NOFILE, order.file_limits)
        try:
            pid = os.fork()
        except OSError as error:
            _write(log, f"drumline: cannot start a process: {error.strerror}\n".encode())
            _write_line(trace, {"code": 126, "at": now(), "over": True})
            os._exit(1)
        if pid == 0:
            is_keeper = False
            _become_replica(order, descriptors, become or _execute)
            return
        for descriptor in descriptors.all.difference(descriptors.held, (trace,)):
            os.close(descriptor)
        watch = SupervisorWatch(*order.next_supervisor) if order.next_supervisor else None
        lease = order.begin_lease(pid, now)
        status, cpu_seconds = _wait_for(pid, lease or watch)
        outlived = {"lease": lease.seconds} if lease and lease.is_over else {}
        end = {"code": _code(status), "signal": _signal(status), "at": now(), "cpu": round(cpu_seconds, 3)}
        _write_line(trace, {**end, **outlived, **(out_of_memory(order.group) if order.group else {})})
        _end_leftovers(gently=_signal(status) != signal.SIGKILL)
        _write_line(trace, {"over": True})
        if watch:
            watch.finish()
    finally:
        if is_keeper:
            os._exit(0)  # this fork must never return to the code of its parent


def _become_replica(order: Order, descriptors: Descriptors, become: Become) -> None:
    is_replica = False
    try:
        os.setsid()
        unlimited = _enter(order.group)
        for number in _OWN_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(descriptors.log, 1)
        os.dup2(descriptors.log, 2)
        _record_start(order, descriptors, unlimited)
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        step = "enter its network"
        try:
            for namespace in descriptors.enter:
                enter_namespace(namespace)
            step = f"work in {order.workdir}"
            os.chdir(order.workdir)
        except OSError as error:
            _write(2, f"drumline: cannot {step}: {error.strerror}\n".encode())
            os._exit(126)
        for descriptor in descriptors.all:
            os.close(descriptor)
        try:
            become(order.argv, order.env)
            is_replica = True
        except (OSError, ValueError) as error:
            missing = isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR)
            reason = _reason(error, order.argv[0])
            _write(2, f"drumline: cannot run {order.argv[0]}: {reason}\n".encode(errors="replace"))
            os._exit(127 if missing else 126)
    finally:
        if not is_replica:
            os._exit(125)


def _record_start(order: Order, descriptors: Descriptors, unlimited: str) -> None:
    """Record the replica's process in the trace, and write it to the supervisor's pipe."""
    pid = os.getpid()
    known = {"pid": pid, "ticks": start_ticks(pid), "unlimited": unlimited, "note": order.note}
    _write_line(descriptors.trace, {name: value for name, value in known.items() if value != ""})
    _write(descriptors.news, json.dumps([order.name, pid, unlimited, order.note]).encode() + b"\n")


def _execute(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Execute this command; a script without an interpreter line is run by sh."""
    try:
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        os.execve("/bin/sh", ["sh", _find(argv[0], env), *argv[1:]], dict(env))


def _find(command: str, env: Mapping[str, str]) -> str:
    """Return the file of a command, found on the PATH of `env`; raise FileNotFoundError if there is none."""
    if "/" in command:
        return command
    for folder in os.get_exec_path(dict(env)):
        path = os.path.join(folder, command)  # noqa: PTH118
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)


def _reason(error: OSError | ValueError, command: str) -> str:
    """Return why a command could not be run."""
    if not isinstance(error, OSError):
        return str(error)
    if error.errno not in (errno.ENOENT, errno.ENOTDIR):
        return error.strerror or str(error)
    # The kernel reports the same error for a script with a missing interpreter.
    return "its interpreter does not exist" if "/" in command and os.path.exists(command) else "no such command"  # noqa: PTH110


def _enter(group: str) -> str:
    """Move this process, and so all processes that it starts, into a cgroup; return the error, "" if there is none."""
    try:
        if group:
            with open(f"{group}/cgroup.procs", "w", encoding="ascii") as members:  # noqa: PTH123
                members.write("0")  # 0 is the writing process
    except OSError as error:
        return error.strerror or str(error)
    return ""


def out_of_memory(group: str) -> dict[str, tuple[str, str]]:
    """Return the peak usage and the limit of a cgroup if the kernel killed a process in it because memory ran out."""
    lines = _read_first(group, "memory.events", "memory.oom_control").splitlines()  # version 2, version 1
    if not any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines):
        return {}
    # The peak includes swap if the kernel counts it; in version 2 no swap is allowed.
    used = _read_first(group, "memory.peak", "memory.memsw.max_usage_in_bytes", "memory.max_usage_in_bytes")
    limit = _read_first(group, "memory.max", "memory.limit_in_bytes")
    return {"out_of_memory": (used, limit)}


def _read_first(folder: str, *names: str) -> str:
    """Return the content of the first of these files that can be read; "" if none can."""
    for name in names:
        with suppress(OSError), open(f"{folder}/{name}", encoding="ascii") as stream:  # noqa: PTH123
            return stream.read().strip()
    return ""


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in ticks since boot: boot id, pid and ticks identify a process."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int | str) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; empty if the process has ended."""
    try:
        stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(stat, 4096).rpartition(b")")[2].split()
        finally:
            os.close(stat)
    except OSError:
        return []


def _wait_for(pid: int, watch: SupervisorWatch | Lease | None) -> tuple[int, float]:
    """Reap children until this process ends; return its wait status, and the CPU seconds of all.

    Meanwhile replace a supervisor that has died, or end a replica after its lease.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # so that no SIGCHLD is missed between check and wait
    cpu_seconds = 0.0
    while True:
        is_watching = watch is not None and watch.is_needed
        ended, status, used = os.wait3(os.WNOHANG if is_watching else 0)
        cpu_seconds += used.ru_utime + used.ru_stime if ended else 0.0
        if ended == pid:
            return status, cpu_seconds
        if watch and not ended:
            signal.sigtimedwait({signal.SIGCHLD}, watch.pause_seconds)
            watch.check()


class SupervisorWatch:
    """Starts the next supervisor of a run when the last one has died, at most `MOST_RETURNS` times.

    Only one of several keepers starts it: the one that locks the file in which the starts are counted. The started
    process holds the lock until there is a supervisor or none can be started.
    """

    pause_seconds = 2.0  # between two checks

    def __init__(self, folder: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._folder, self._argv, self._env = folder, argv, env
        self._died_at: float | None = None
        self._early_seconds = 0.0  # time until the next start is allowed
        self.is_needed = True  # False after the last allowed start

    def check(self) -> None:
        """Start a supervisor if the last one has died, unless it is too early or another keeper is starting one."""
        if not self._has_died():
            self._died_at = None
            return
        self._died_at = self._died_at or now()
        self._early_seconds = 0.0
        with suppress(OSError, ValueError):  # the replica must be kept in any case
            self._start_next()

    def finish(self) -> None:
        """Check once more, and if it is too early, wait and check again: this keeper may be the last one."""
        self.check()
        if self._early_seconds > 0:
            time.sleep(self._early_seconds)
            self.check()

    def _has_died(self) -> bool:
        try:
            lock = self._open(SUPERVISOR_LOCK, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return os.read(lock, 1) != b""
        except OSError:
            return False
        finally:
            os.close(lock)

    def _start_next(self) -> None:
        returns = self._open(SUPERVISOR_RETURNS, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(returns, fcntl.LOCK_EX | fcntl.LOCK_NB)
            number = int(os.pread(returns, 8, 0) or b"0") + 1
            self.is_needed = number <= MOST_RETURNS
            if not self.is_needed or not self._has_died():
                return
            self._early_seconds = (self._died_at or 0.0) + (number - 1) * _PAUSE_SECONDS - now()
            if self._early_seconds > 0:
                return
            os.pwrite(returns, str(number).encode(), 0)
            if fork_sibling() == 0:
                self._become_command(number, returns)
            self._died_at = None
        finally:
            os.close(returns)

    def _become_command(self, number: int, returns: int) -> NoReturn:
        """Execute the command that starts a supervisor, with the open and locked file that counts the starts."""
        try:
            os.setsid()
            for each in (*_OWN_SIGNALS, *_IGNORED_BY_PYTHON):
                signal.signal(each, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            null = os.open(os.devnull, os.O_RDONLY)
            log = self._open(SUPERVISOR_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for source, target in ((null, 0), (log, 1), (log, 2)):
                os.dup2(source, target)
            close_all_but(returns)
            os.set_inheritable(returns, True)
            _execute([*self._argv, str(number), str(MOST_RETURNS)], self._env)
        except OSError as error:
            _write(2, f"the next supervisor cannot be started: {error.strerror}\n".encode())
        finally:
            os._exit(127)

    def _open(self, name: str, flags: int) -> int:
        return os.open(f"{self._folder}/{name}", flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def fork_sibling() -> int:
    """Fork a sibling of this process and return its pid, 0 in the fork.

    A child would be ended with the leftovers of the replica.

    Must be followed by an exec: Python's state is not prepared for this fork.
    """
    call = _SYS_CLONE.get(os.uname().machine) if sys.platform == "linux" and sys.maxsize > 1 << 32 else None
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    words = map(ctypes.c_long, (call, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    pid: int = ctypes.PyDLL(None, use_errno=True).syscall(*words)
    if pid < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return pid


def _end_leftovers(*, gently: bool) -> None:
    """End all leftover processes of the replica, in any session; return when none is left that may be signalled."""
    deadline = now() + (LEFTOVER_GRACE_SECONDS if gently else 0.0)
    asked: set[int] = set()
    pause = 0.001
    while _reap():
        is_kill_due = now() >= deadline
        left = descendants([os.getpid()])
        for pid in left:
            if is_kill_due or pid not in asked:
                asked.add(pid)
                permitted = signal_process(pid, signal.SIGKILL if is_kill_due else signal.SIGTERM)
                left = left if permitted else left - {pid}
        if is_kill_due and not left:
            _reap()  # processes that ended meanwhile, so that no zombie stays
            return  # the others belong to another user, as after `sudo`
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def _reap() -> bool:
    """Reap all children that have ended; return whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def processes() -> Iterator[Process]:
    """Yield every process of this machine that has not ended."""
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdecimal() and (fields := _stat(entry)) and fields[0] not in (b"Z", b"X"):
            yield Process(int(entry), int(fields[1]), int(fields[3]))


def descendants(roots: Iterable[int], among: Iterable[Process] | None = None) -> set[int]:
    """Return the pids of all descendants of these processes, by default among all processes of this machine."""
    children: dict[int, list[int]] = {}
    for process in processes() if among is None else among:
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        below = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(below)
        waiting.extend(below)
    return found


def signal_process(pid: int, number: int) -> bool:
    """Send a signal; return False if that is not permitted."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has just ended
    except PermissionError:
        return False
    return True


def enter_namespace(descriptor: int) -> None:
    """Move this process to another namespace; Python has `os.setns` only from 3.12 on."""
    if _libc().setns(descriptor, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def close_all_but(*kept: int) -> None:
    """Close all inherited descriptors but these, so that locks and sockets belong to their owner only."""
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
    with suppress(OSError):  # a full disk must not stop the replica or its keeper
        os.write(descriptor, data)
