"""To whom a warm process belongs: one interpreter, one environment, one corner of the machine."""

from __future__ import annotations

import hashlib
import json
import os
import resource
from collections.abc import Collection, Mapping
from contextlib import suppress

from drumline.engine.local.forker import limit_names
from drumline.engine.local.warm.command import Command, NotWarm

# What a warm process is made of: another version of drumline begins another.
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

# Of the terminal and the session of whoever launches: no package asks for them when it is imported.
_OF_A_SESSION = frozenset(
    """
    _ COLORTERM COLUMNS DBUS_SESSION_BUS_ADDRESS DISPLAY EDITOR HISTFILE INVOCATION_ID JOURNAL_STREAM LESSCLOSE LESSOPEN
    LINES LS_COLORS MAIL MOTD_SHOWN NO_PROXY OLDPWD PAGER PROMPT_COMMAND PS1 PWD SHLVL SSH_AGENT_PID SSH_AUTH_SOCK
    SSH_CLIENT SSH_CONNECTION SSH_TTY STY SYSTEMD_EXEC_PID TERM TERM_PROGRAM TERM_PROGRAM_VERSION TERM_SESSION_ID TMUX
    TMUX_PANE VTE_VERSION WAYLAND_DISPLAY WINDOW WINDOWID XAUTHORITY XDG_SEAT XDG_SESSION_CLASS XDG_SESSION_ID
    XDG_SESSION_TYPE XDG_VTNR no_proxy
    """.split()  # noqa: SIM905
)
# Read when a device is first used, not before.
_OF_A_REPLICA = frozenset({"CUDA_VISIBLE_DEVICES", "JAX_LOCAL_DEVICE_IDS"})


def shared_environment(env: Mapping[str, str], own: Collection[str]) -> dict[str, str]:
    """The part of a replica's environment that it has in common with others; `own` is what only its run gives it.

    Raise NotWarm for a variable that has Python begin differently every time.
    """
    if env.get("PYTHONHASHSEED", "random") != "random":
        raise NotWarm("PYTHONHASHSEED is set")
    for variable in ("COVERAGE_PROCESS_START", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONPROFILEIMPORTTIME"):
        if env.get(variable):
            raise NotWarm(f"{variable} is set")
    if any(not os.path.isabs(path) for path in env.get("PYTHONPATH", "/").split(os.pathsep)):  # noqa: PTH117
        raise NotWarm("PYTHONPATH names a folder by where one stands")
    return {
        name: value
        for name, value in sorted(env.items())
        if name not in _OF_A_SESSION and not is_of_one_replica(name, own)
    }


def is_of_one_replica(name: str, own: Collection[str]) -> bool:
    """Return whether a variable has a value of one run or replica alone; `own` is what only its run gives it."""
    return name in own or name in _OF_A_REPLICA or _is_ours(name)


def _is_ours(name: str) -> bool:
    """Whether drumline gives it to a replica; where an environment finds `drumline.runtime` is the same for all."""
    return name.startswith(("DRUMLINE_", "DATA_DIR")) and name != "DRUMLINE_RUNTIME"


def make_key(command: Command, framework: str, modules: Collection[str], env: Mapping[str, str], warm_file: str) -> str:
    """A name for the one warm process that all these have in common."""
    what = [
        command.interpreter,
        _stamp(command.interpreter),
        command.options,
        framework,
        sorted(modules),
        sorted(env.items()),
        [_stamp(os.path.join(os.path.dirname(warm_file), name)) for name in _OWN_FILES],  # noqa: PTH118, PTH120
        _corner(),
    ]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def _corner() -> list[object]:
    """What a process has from the one that started it and cannot choose for itself."""
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
