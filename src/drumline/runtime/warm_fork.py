"""Set up a fork of a warm process like a new Python process before it runs its script."""

from __future__ import annotations

import gc
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any, NamedTuple

_PR_SET_MM = 35
_PR_SET_MM_MAP = 14
_NO_DESCRIPTOR = 0xFFFFFFFF

_shown: Any = None  # the text for /proc, which the kernel reads while this process runs


class Script(NamedTuple):
    """The script of a replica, a file or a module's name, and the arguments of its parent if that is a shell."""

    path: str
    module: str
    shell: Sequence[str] = ()


def set_up(script: Script, argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Give this process the arguments, environment and import path of a new Python process with this command."""
    if script.shell:
        _fork_below_shell(script.shell, env)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    _show_as(argv, env)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    _reset_import_state()
    sys.orig_argv = list(argv)
    sys.argv = ["-m", *argv[argv.index("-m") + 2 :]] if script.module else list(argv[argv.index(script.path) :])
    if not getattr(sys.flags, "safe_path", False):
        folder = os.getcwd() if script.module else os.path.dirname(os.path.realpath(script.path))  # noqa: PTH109, PTH120
        sys.path.insert(0, folder)
    gc.enable()


def _fork_below_shell(words: Sequence[str], env: Mapping[str, str]) -> None:
    """Fork a child and return in it; this process behaves as dash does for a foreground command, and ends.

    A signal ends this process as it ends dash. If a signal ends the child, the exit code of this process is 128 plus
    its number, and its name is written to the log.
    """
    own_name = _rename(os.path.basename(words[0]))  # noqa: PTH119
    _show_as(words, env)  # before the child can read its parent's command line
    pid = os.fork()
    if pid == 0:
        _rename(own_name)
        return
    code = 2
    try:
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)  # also for the handlers of faulthandler
        status = os.waitpid(pid, 0)[1]
        if os.WIFEXITED(status):
            code = os.WEXITSTATUS(status)
        else:
            ended_by = os.WTERMSIG(status)
            code = 128 + ended_by
            if ended_by not in (signal.SIGINT, signal.SIGPIPE):
                dumped = " (core dumped)" if os.WCOREDUMP(status) else ""
                os.write(2, f"{signal.strsignal(ended_by)}{dumped}\n".encode())
    finally:
        os._exit(code)


def _rename(name: str) -> str:
    """Set the name of this process, and return the previous one."""
    with suppress(OSError), open("/proc/self/comm", "r+", encoding="utf-8", errors="surrogateescape") as comm:  # noqa: PTH123
        before = comm.read().rstrip("\n")
        comm.seek(0)
        comm.write(name)
        return before
    return name


def _reset_import_state() -> None:
    """Reset the time, the folder and the key that modules recorded when they were imported."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.__dict__["ORIGINAL_DIR"] = os.getcwd()  # noqa: PTH109
        processes.current_process().authkey = os.urandom(32)
    logging = sys.modules.get("logging")
    if logging is not None:
        logging.__dict__["_startTime"] = time.time()


def _show_as(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Make /proc, and so `ps`, show this command and environment, if the system allows that."""
    import ctypes  # noqa: PLC0415

    global _shown  # noqa: PLW0603
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    with suppress(OSError, ValueError, AttributeError, IndexError):
        _shown = ctypes.create_string_buffer(words + variables)
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
            fields = ["", "", "", *stream.read().rpartition(")")[2].split()]  # numbered from 1 as in proc(5)
        libc = ctypes.CDLL(None)
        libc.sbrk.restype = ctypes.c_void_p
        begin = ctypes.addressof(_shown)
        middle, end = begin + len(words), begin + len(words) + len(variables)
        code_and_data = (fields[26], fields[27], fields[45], fields[46])
        addresses = (*code_and_data, fields[47], libc.sbrk(0), fields[28], begin, middle, middle, end, 0)
        wanted = struct.pack("=12QII", *map(int, addresses), 0, _NO_DESCRIPTOR)
        libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, wanted, len(wanted), 0)


def main_module(script: Script, native: Mapping[str, object]) -> ModuleType:
    """Return a new main module with the attributes that a main module has before its code runs."""
    module = ModuleType("__main__")
    module.__dict__.clear()
    module.__dict__.update(native, __doc__=None)
    if "__annotations__" in native:
        module.__annotations__ = {}
    if not script.module:
        path = os.path.join(os.getcwd(), script.path)  # noqa: PTH109, PTH118
        module.__file__ = path
        module.__loader__ = SourceFileLoader("__main__", path)
    return module


def hide_own_frame(hook: Callable[..., object]) -> Callable[..., object]:
    """Return an exception hook that hides drumline's frame, which is the outermost one of a traceback."""

    def show(kind: Any, error: BaseException, trace: Any) -> None:
        sys.excepthook = hook
        trace = trace and trace.tb_next
        sys.last_traceback = trace
        hook(kind, error.with_traceback(trace), trace)

    return show
