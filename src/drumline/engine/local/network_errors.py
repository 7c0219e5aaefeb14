"""Why a system refused to make a private network, and what to allow: the switch that is set, by name."""

from __future__ import annotations

import errno
import os
from pathlib import Path

# How many namespaces of a kind a user may have.
_LIMITS = {"user": "max_user_namespaces", "network": "max_net_namespaces", "name": "max_uts_namespaces"}
_DEBIANS = "kernel/unprivileged_userns_clone"
_UBUNTUS = "kernel/apparmor_restrict_unprivileged_userns"


def explain_network_error(step: str, number: int, *, proc: Path = Path("/proc"), root: bool | None = None) -> str:
    """Say in a sentence why this step failed with this error, and what to allow."""
    is_root = os.geteuid() == 0 if root is None else root
    return f"a private network cannot be made here: {_reason(step, number, proc, is_root=is_root)}"


def _reason(step: str, number: int, proc: Path, *, is_root: bool) -> str:
    if number in (errno.ENOSPC, errno.EUSERS) and step in _LIMITS:
        switch = _LIMITS[step]
        most = _read(proc / "sys/user" / switch)
        said = f"`user.{switch}` is 0" if most == "0" else f"all {most} that `user.{switch}` allows are in use"
        return f"{said}; allow more, as root: `sysctl -w user.{switch}=10000`"
    if number in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        switches = [_debians(proc), _ubuntus(proc)]
        causes = [_filter(proc), *switches] if is_root else [*switches, _filter(proc)]  # root needs no permission
        if cause := next(filter(None, causes), None):
            return cause
    if step == "user" and number in (errno.EINVAL, errno.ENOSYS):
        return "this kernel has no user namespaces (CONFIG_USER_NS)"
    if step in ("bridge", "cable") and number == errno.EOPNOTSUPP:
        module = "bridge" if step == "bridge" else "veth"
        return f"this kernel has no `{module}`; load it, as root: `modprobe {module}`"
    if number in (errno.EMFILE, errno.ENFILE):
        return f"{os.strerror(number)}; `ulimit -Hn` says how many you may have"
    return f"{os.strerror(number)} (a {step} namespace)" if step in _LIMITS else f"{os.strerror(number)} ({step})"


def _debians(proc: Path) -> str:
    if _read(proc / "sys" / _DEBIANS) != "0":
        return ""
    name = _DEBIANS.replace("/", ".")
    return f"`{name}` is 0; allow user namespaces, as root: `sysctl -w {name}=1`"


def _ubuntus(proc: Path) -> str:
    if _read(proc / "sys" / _UBUNTUS) in ("", "0"):
        return ""
    name = _UBUNTUS.replace("/", ".")
    return f"AppArmor restricts user namespaces (`{name}` is 1); allow them, as root: `sysctl -w {name}=0`"


def _filter(proc: Path) -> str:
    """A filter of system calls, which containers have."""
    if "\nSeccomp:\t2\n" not in _read(proc / "self/status") + "\n":
        return ""
    return (
        "a filter of this container forbids user namespaces; start it with one that allows `unshare` and `setns`,"
        " such as `docker run --security-opt seccomp=unconfined`"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
