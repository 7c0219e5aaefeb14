"""The keeper of one replica: starts it, outlives it, and leaves its traces on disk.

A keeper lives in a session of its own, so that no signal meant for the replica's group reaches it, and is the
subreaper of everything the replica starts. Its trace is one file that it holds locked: a line when the process
becomes the replica, a line with how that ended, a last one when nothing of it is alive; only then it
leaves. Unlocked and without the second line, nobody saw the end; without the last, somebody may be left. The file
has its full length before anything starts, so that no full disk keeps an end from being written.

A keeper also starts the next supervisor of its run when the last one has died: see `SupervisorWatch`.

It is one file, and imports the standard library only: a warm process loads it by its path, in an environment that need
not have drumline.
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

# In a run's folder: held by its supervisor, with its pid until it leaves in order; how often keepers have started one.
SUPERVISOR_LOCK = "supervisor.lock"
SUPERVISOR_LOG = "supervisor.log"
SUPERVISOR_RETURNS = "supervisor.returns"
MOST_RETURNS = 5  # in the life of a run
_PAUSE_SECONDS = 1.0  # before the second return, twice as long before the third

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_PARENT = 0x8000
_SYS_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220, "ppc64le": 120}
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # and programs expect that nobody does
_OWN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Process(NamedTuple):
    """A living process of this machine, who started it, and the session it is in."""

    pid: int
    parent: int
    session: int


def now() -> float:
    """Seconds of a clock that never goes back, counts sleep, and is the same in every process until the next boot."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def boot_id() -> str:
    """Which boot of this machine it is; processes of another are gone."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:  # noqa: PTH123
            return stream.read().strip()
    except OSError:
        return ""


@cache
def _libc() -> ctypes.CDLL:
    """The system's library; every fork of ours has it already."""
    return ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Adopt every orphan among our descendants, where the system can."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Be killed when whoever started us ends, where the system can."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


Become = Callable[[Sequence[str], Mapping[str, str]], None]


def keep(order: Order, descriptors: Descriptors, become: Become | None = None) -> None:
    """Run one replica. Called in a fresh fork, and never returns there, unless `become` does, in the replica itself.

    Unless somebody else says what to become, the replica becomes its command, and nothing that was open in the
    process from which it was forked stays so.
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
            watch.leave()
    finally:
        if is_keeper:
            os._exit(0)  # whatever happens, this fork must not go on as its supervisor


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
        _introduce(order, descriptors, unlimited)
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


def _introduce(order: Order, descriptors: Descriptors, unlimited: str) -> None:
    """Write down which process the replica is, and tell the supervisor, if there is one to read it."""
    pid = os.getpid()
    known = {"pid": pid, "ticks": start_ticks(pid), "unlimited": unlimited, "note": order.note}
    _write_line(descriptors.trace, {name: value for name, value in known.items() if value != ""})
    _write(descriptors.news, json.dumps([order.name, pid, unlimited, order.note]).encode() + b"\n")


def _execute(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Become this command; a script that names no interpreter is the shell's, as anywhere."""
    try:
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        os.execve("/bin/sh", ["sh", _find(argv[0], env), *argv[1:]], dict(env))


def _find(command: str, env: Mapping[str, str]) -> str:
    """The file of a command, which may be on the path of an environment; raise FileNotFoundError if there is none."""
    if "/" in command:
        return command
    for folder in os.get_exec_path(dict(env)):
        path = os.path.join(folder, command)  # noqa: PTH118
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)


def _reason(error: OSError | ValueError, command: str) -> str:
    """Why a command could not be run, in words."""
    if not isinstance(error, OSError):
        return str(error)
    if error.errno not in (errno.ENOENT, errno.ENOTDIR):
        return error.strerror or str(error)
    # The kernel says the same of a script whose first line names an interpreter that is not there.
    return "its interpreter does not exist" if "/" in command and os.path.exists(command) else "no such command"  # noqa: PTH110


def _enter(group: str) -> str:
    """Put this process, and so all that it starts, into a cgroup; return why that failed, if it did."""
    try:
        if group:
            with open(f"{group}/cgroup.procs", "w", encoding="ascii") as members:  # noqa: PTH123
                members.write("0")  # whoever writes
    except OSError as error:
        return error.strerror or str(error)
    return ""


def out_of_memory(group: str) -> dict[str, tuple[str, str]]:
    """If the kernel ended somebody in a cgroup for want of memory: the most that was used, and the limit."""
    lines = _read_first(group, "memory.events", "memory.oom_control").splitlines()  # version 2, version 1
    if not any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines):
        return {}
    # Swap counts as memory where it is counted; in version 2 there is none to be had.
    used = _read_first(group, "memory.peak", "memory.memsw.max_usage_in_bytes", "memory.max_usage_in_bytes")
    limit = _read_first(group, "memory.max", "memory.limit_in_bytes")
    return {"out_of_memory": (used, limit)}


def _read_first(folder: str, *names: str) -> str:
    """What the first of these files says that can be read."""
    for name in names:
        with suppress(OSError), open(f"{folder}/{name}", encoding="ascii") as stream:  # noqa: PTH123
            return stream.read().strip()
    return ""


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since boot: with the pid and the boot it names a process for good."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int | str) -> list[bytes]:
    """What the kernel says of a process, from its state on; nothing if it is gone."""
    try:
        stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(stat, 4096).rpartition(b")")[2].split()
        finally:
            os.close(stat)
    except OSError:
        return []


def _wait_for(pid: int, watch: SupervisorWatch | Lease | None) -> tuple[int, float]:
    """Reap whatever ends until it is this process; return its wait status, and what all of them computed in seconds.

    Meanwhile a supervisor that has died is replaced, and a replica whose lease is over is ended.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # so that no end is missed between a look and the wait
    cpu_seconds = 0.0
    while True:
        looks = watch is not None and watch.is_needed
        ended, status, used = os.wait3(os.WNOHANG if looks else 0)
        cpu_seconds += used.ru_utime + used.ru_stime if ended else 0.0
        if ended == pid:
            return status, cpu_seconds
        if watch and not ended:
            signal.sigtimedwait({signal.SIGCHLD}, watch.pause_seconds)
            watch.look()


class SupervisorWatch:
    """Starts the next supervisor of a run when the last one has died, at most `MOST_RETURNS` times in the run's life.

    Of several keepers one starts it: that keeper locks the file that counts the returns, and the process that it starts
    holds the lock until there is a supervisor or none can be started.
    """

    pause_seconds = 2.0  # between two looks

    def __init__(self, folder: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._folder, self._argv, self._env = folder, argv, env
        self._died_at: float | None = None
        self._early_seconds = 0.0  # for so long it is too soon
        self.is_needed = True  # until no return is left

    def look(self) -> None:
        """Start a supervisor if the last one has died, unless it is too soon, or another keeper is starting one."""
        if not self._has_died():
            self._died_at = None
            return
        self._died_at = self._died_at or now()
        self._early_seconds = 0.0
        with suppress(OSError, ValueError):  # whatever happens, the replica is kept
            self._start_next()

    def leave(self) -> None:
        """Look once more, and wait if it is too soon: this keeper may be the last one."""
        self.look()
        if self._early_seconds > 0:
            time.sleep(self._early_seconds)
            self.look()

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
            if fork_beside() == 0:
                self._become_command(number, returns)
            self._died_at = None
        finally:
            os.close(returns)

    def _become_command(self, number: int, returns: int) -> NoReturn:
        """Become the command that starts a supervisor, with the file that counts the returns open and locked."""
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


def fork_beside() -> int:
    """Fork a sibling: a child would be ended with everything else that is left of the replica.

    To be followed by an exec: Python does not know of this fork.
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
    """End what the replica left behind, in whatever session it hides; return when nothing that we may end is alive."""
    deadline = now() + (LEFTOVER_GRACE_SECONDS if gently else 0.0)
    asked: set[int] = set()
    pause = 0.001
    while _reap():
        harsh = now() >= deadline
        left = descendants([os.getpid()])
        for pid in left:
            if harsh or pid not in asked:
                asked.add(pid)
                may = signal_process(pid, signal.SIGKILL if harsh else signal.SIGTERM)
                left = left if may else left - {pid}
        if harsh and not left:
            _reap()  # who has ended since we looked for children, or it would be a zombie for others to find
            return  # whoever is left is somebody else's now, as after `sudo`
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


def processes() -> Iterator[Process]:
    """Every process of this machine that has not ended."""
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdecimal() and (fields := _stat(entry)) and fields[0] not in (b"Z", b"X"):
            yield Process(int(entry), int(fields[1]), int(fields[3]))


def descendants(roots: Iterable[int], among: Iterable[Process] | None = None) -> set[int]:
    """Every process below these."""
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
    """Send a signal; False if that is not for us to do."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has just ended
    except PermissionError:
        return False
    return True


def enter_namespace(descriptor: int) -> None:
    """Go on in another namespace; from 3.12 on Python knows the call itself."""
    if _libc().setns(descriptor, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def close_all_but(*kept: int) -> None:
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
