"""The key of a warm process: a digest of its interpreter, its environment, and the properties that it inherits."""

from __future__ import annotations

import hashlib
import json
import os
import resource
from collections.abc import Collection, Mapping
from contextlib import suppress

from drumline.engine.local.forker import limit_names
from drumline.engine.local.warm.command import Command, NotWarm

# The files of a warm process's code: a version of drumline with other files starts another warm process.
_OWN_FILES = (
    "warm.py",
    "keeper.py",
    "order.py",
    "priority.py",
    "randomness.py",
    "unix.py",
    "warm_fork.py",
    "warm_imports.py",
)
_NAMESPACES = ("mnt", "pid", "net", "user", "ipc", "uts", "cgroup", "time")
_OF_A_PROCESS = ("cgroup", "oom_score_adj", "personality")

# Variables of a terminal or session: no package reads them when it is imported.
_OF_A_SESSION = frozenset(
    """
    _ COLORTERM COLUMNS DBUS_SESSION_BUS_ADDRESS DISPLAY EDITOR HISTFILE INVOCATION_ID JOURNAL_STREAM LESSCLOSE LESSOPEN
    LINES LS_COLORS MAIL MOTD_SHOWN NO_PROXY OLDPWD PAGER PROMPT_COMMAND PS1 PWD SHLVL SSH_AGENT_PID SSH_AUTH_SOCK
    SSH_CLIENT SSH_CONNECTION SSH_TTY STY SYSTEMD_EXEC_PID TERM TERM_PROGRAM TERM_PROGRAM_VERSION TERM_SESSION_ID TMUX
    TMUX_PANE VTE_VERSION WAYLAND_DISPLAY WINDOW WINDOWID XAUTHORITY XDG_SEAT XDG_SESSION_CLASS XDG_SESSION_ID
    XDG_SESSION_TYPE XDG_VTNR no_proxy
    """.split()  # noqa: SIM905
)
# Read when a device is first used, not at import.
_OF_A_REPLICA = frozenset({"CUDA_VISIBLE_DEVICES", "JAX_LOCAL_DEVICE_IDS"})


def shared_environment(env: Mapping[str, str], own: Collection[str]) -> dict[str, str]:
    """Return the variables that a replica shares with others; `own` are the names that belong to its run.

    Raise NotWarm for a variable that changes how Python starts.
    """
    if env.get("PYTHONHASHSEED", "random") != "random":
        raise NotWarm("PYTHONHASHSEED is set")
    for variable in ("COVERAGE_PROCESS_START", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONPROFILEIMPORTTIME"):
        if env.get(variable):
            raise NotWarm(f"{variable} is set")
    if any(not os.path.isabs(path) for path in env.get("PYTHONPATH", "/").split(os.pathsep)):  # noqa: PTH117
        raise NotWarm("PYTHONPATH has a relative folder")
    return {
        name: value
        for name, value in sorted(env.items())
        if name not in _OF_A_SESSION and not is_of_one_replica(name, own)
    }


def is_of_one_replica(name: str, own: Collection[str]) -> bool:
    """Return whether a variable belongs to one run or replica; `own` are the names that belong to its run."""
    return name in own or name in _OF_A_REPLICA or _is_drumlines(name)


def _is_drumlines(name: str) -> bool:
    """Return whether drumline sets a variable for each replica; DRUMLINE_RUNTIME is the same for all."""
    return name.startswith(("DRUMLINE_", "DATA_DIR")) and name != "DRUMLINE_RUNTIME"


def make_key(command: Command, framework: str, modules: Collection[str], env: Mapping[str, str], warm_file: str) -> str:
    """Return the key of the warm process for these properties, and those that this process passes on to it."""
    parts = [
        command.interpreter,
        _stamp(command.interpreter),
        command.options,
        framework,
        sorted(modules),
        sorted(env.items()),
        [_stamp(os.path.join(os.path.dirname(warm_file), name)) for name in _OWN_FILES],  # noqa: PTH118, PTH120
        _inherited(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _inherited() -> list[object]:
    """Return the properties that a process inherits and cannot change itself."""
    limits = [resource.getrlimit(getattr(resource, name))[1] for name in limit_names()]
    return [
        os.getresuid(),
        os.getresgid(),
        sorted(os.getgroups()),
        os.nice(0),
        limits,
        [_link(f"/proc/self/ns/{name}") for name in _NAMESPACES],
        [_read(f"/proc/self/{name}") for name in _OF_A_PROCESS],
    ]


def _stamp(path: str) -> object:
    with suppress(OSError):
        found = os.stat(path)  # noqa: PTH116
        return found.st_mtime_ns, found.st_size, found.st_ino
    return None


def _link(path: str) -> str:
    with suppress(OSError):
        return os.readlink(path)  # noqa: PTH115
    return ""


def _read(path: str) -> str:
    with suppress(OSError), open(path, encoding="utf-8") as stream:  # noqa: PTH123
        return stream.read()
    return ""
