"""The imports of a warm process, and checks that its forks behave like new processes."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import ModuleType

_EXITING = 4  # the flag of a thread that is about to end, in /proc/PID/task/TID/stat

_MADV_DONTNEED = 4
_LEAST_MEMORY = 0.05  # share of the machine's memory; if less is available, warm processes end


class Unforkable(Exception):  # noqa: N818
    """Forks of this process would differ from new processes; the message says why."""


def import_modules(framework: str, modules: Sequence[str]) -> None:
    """Import a framework and these modules; raise Unforkable if forks would differ from new processes."""
    first = () if framework == "plain" else (framework,)
    try:
        for name in (*first, *modules):
            importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - whatever a package may raise
        raise Unforkable(f"{type(error).__name__}: {error}"[:200]) from None
    check_threads()
    check_origins(sys.modules)
    if modules:
        # Imported objects are frozen in forks, so the collection at exit would skip them. Packages may do something
        # when they are freed: flush a file, or print reports of leaks.
        atexit.register(gc.unfreeze)


def check_threads() -> None:
    """Raise Unforkable for threads, which a fork would not have; threads for linear algebra end before a fork."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about threads
        pid = os.fork()
    if not pid:
        os._exit(0)
    with suppress(ChildProcessError):  # the warm process ignores SIGCHLD
        os.waitpid(pid, 0)
    if sum(map(_is_running, os.listdir("/proc/self/task"))) > 1:  # noqa: PTH208
        raise Unforkable("importing it starts a thread, which a fork would not have")


def _is_running(thread: str) -> bool:
    try:
        with open(f"/proc/self/task/{thread}/stat", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
            flags = int(stream.read().rpartition(")")[2].split()[6])
    except (FileNotFoundError, ProcessLookupError):
        return False
    return not flags & _EXITING


def check_origins(modules: Mapping[str, ModuleType]) -> None:
    """Raise Unforkable for modules from outside the environment: they may change with every run."""
    named = (sys.prefix, sys.base_prefix, *_site_folders())
    homes = tuple(f"{path}/" for each in named for path in (each, os.path.realpath(each)))
    library = os.path.dirname(os.__file__)  # noqa: PTH120
    own = f"{os.path.realpath(sys.base_prefix)}/"
    for name, module in list(modules.items()):
        file = getattr(module, "__file__", None)
        if module is modules.get("__main__") or not isinstance(file, str) or not os.path.isabs(file):  # noqa: PTH117
            continue
        # A distribution has its `sitecustomize` in Python's library, perhaps as a link. Only these two modules are
        # checked with `realpath` first: for all modules it takes 0.2 s.
        if name in ("sitecustomize", "usercustomize") and not _is_in_library(library, own, file):
            raise Unforkable(f"there is a {name}, {file}")
        if not file.startswith(homes) and not os.path.realpath(file).startswith(homes):
            raise Unforkable(f"{name} would be imported from {file}, which is not the environment's")


def _is_in_library(library: str, own: str, file: str) -> bool:
    return os.path.dirname(file) == library or os.path.realpath(file).startswith(own)  # noqa: PTH120


def _site_folders() -> list[str]:
    import site  # noqa: PLC0415 - only needed here

    return [*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(os.__file__)]  # noqa: PTH120


class LoadedFiles:
    """The files of all loaded modules, with their times, sizes and inodes."""

    def __init__(self) -> None:
        names = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        self._known = {name: _stamp(name) for name in names if isinstance(name, str)}

    def changed(self) -> str:
        """Return the first file that has changed; "" if none has."""
        return next((name for name, stamp in self._known.items() if _stamp(name) != stamp), "")


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def release_code_pages() -> None:
    """Release the pages with code of libraries from this process; it and its forks read them again when needed."""
    import ctypes  # noqa: PLC0415

    libc = ctypes.CDLL(None)
    with suppress(OSError, ValueError), open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123
        for line in maps:
            addresses, rights, _, _, inode, *_ = line.split()
            if rights == "r-xp" and inode != "0":  # never written
                begin, end = (int(address, 16) for address in addresses.split("-"))
                libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_DONTNEED)


def is_memory_short() -> bool:
    """Return whether little memory is available, so that an idle process should end."""
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:  # noqa: PTH123
            sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in stream)}
    except (OSError, ValueError, IndexError):
        return False
    return sizes.get("MemAvailable", 1) < sizes.get("MemTotal", 0) * _LEAST_MEMORY
