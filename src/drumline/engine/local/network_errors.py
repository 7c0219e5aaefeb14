"""Explain why the system refused to make a private network, and name the setting that allows it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

# Settings that limit the number of namespaces of a user, by kind.
_LIMITS = {"user": "max_user_namespaces", "network": "max_net_namespaces", "name": "max_uts_namespaces"}
_DEBIAN_SETTING = "kernel/unprivileged_userns_clone"
_UBUNTU_SETTING = "kernel/apparmor_restrict_unprivileged_userns"


def explain_network_error(step: str, number: int, *, proc: Path = Path("/proc"), root: bool | None = None) -> str:
    """Return why this step failed with this errno, and what to allow."""
    is_root = os.geteuid() == 0 if root is None else root
    return f"a private network cannot be created on this machine: {_reason(step, number, proc, is_root=is_root)}"


def _reason(step: str, number: int, proc: Path, *, is_root: bool) -> str:
    if number in (errno.ENOSPC, errno.EUSERS) and step in _LIMITS:
        switch = _LIMITS[step]
        most = _read(proc / "sys/user" / switch)
        limit = f"`user.{switch}` is 0" if most == "0" else f"all {most} that `user.{switch}` allows are in use"
        return f"{limit}; allow more, as root: `sysctl -w user.{switch}=10000`"
    if number in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        switches = [_debian_cause(proc), _ubuntu_cause(proc)]
        causes = (
            [_seccomp_cause(proc), *switches] if is_root else [*switches, _seccomp_cause(proc)]
        )  # root needs no permission
        if cause := next(filter(None, causes), None):
            return cause
    if step == "user" and number in (errno.EINVAL, errno.ENOSYS):
        return "this kernel has no user namespaces (CONFIG_USER_NS)"
    if step in ("bridge", "veth") and number == errno.EOPNOTSUPP:
        module = "bridge" if step == "bridge" else "veth"
        return f"this kernel has no `{module}`; load it, as root: `modprobe {module}`"
    if number in (errno.EMFILE, errno.ENFILE):
        return f"{os.strerror(number)}; `ulimit -Hn` shows the limit"
    return f"{os.strerror(number)} (a {step} namespace)" if step in _LIMITS else f"{os.strerror(number)} ({step})"


def _debian_cause(proc: Path) -> str:
    if _read(proc / "sys" / _DEBIAN_SETTING) != "0":
        return ""
    name = _DEBIAN_SETTING.replace("/", ".")
    return f"`{name}` is 0; allow user namespaces, as root: `sysctl -w {name}=1`"


def _ubuntu_cause(proc: Path) -> str:
    if _read(proc / "sys" / _UBUNTU_SETTING) in ("", "0"):
        return ""
    name = _UBUNTU_SETTING.replace("/", ".")
    return f"AppArmor restricts user namespaces (`{name}` is 1); allow them, as root: `sysctl -w {name}=0`"


def _seccomp_cause(proc: Path) -> str:
    """Return the message if a seccomp filter is active, as in containers; else ""."""
    if "\nSeccomp:\t2\n" not in _read(proc / "self/status") + "\n":
        return ""
    return (
        "a seccomp filter forbids user namespaces; start the container with one that allows `unshare` and `setns`,"
        " such as `docker run --security-opt seccomp=unconfined`"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
