"""The messages about a private network that cannot be created: each names the kernel setting that prevents it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from drumline.engine.local.network_errors import explain_network_error

START = "a private network cannot be created on this machine: "
DEBIAN = "sys/kernel/unprivileged_userns_clone"
UBUNTU = "sys/kernel/apparmor_restrict_unprivileged_userns"
FILTERED = "Name:\tpython\nSeccomp:\t2\nSeccomp_filters:\t1\n"
OPEN = "Name:\tpython\nSeccomp:\t0\nSeccomp_filters:\t0\n"


@pytest.mark.parametrize(
    ("files", "root", "expected"),
    [
        ({DEBIAN: "0\n"}, False, "`kernel.unprivileged_userns_clone` is 0"),
        ({DEBIAN: "1\n", UBUNTU: "1\n"}, False, "AppArmor restricts user namespaces"),
        ({UBUNTU: "0\n", "self/status": FILTERED}, False, "a seccomp filter forbids"),
        ({DEBIAN: "0\n", "self/status": FILTERED}, False, "`kernel.unprivileged_userns_clone` is 0"),
        ({DEBIAN: "0\n", "self/status": FILTERED}, True, "a seccomp filter forbids"),
        ({DEBIAN: "1\n", UBUNTU: "0\n", "self/status": OPEN}, False, "Operation not permitted (a user namespace)"),
        ({}, False, "Operation not permitted (a user namespace)"),
    ],
)
def test_a_missing_permission_is_explained_by_the_setting_that_prevents_it(
    tmp_path: Path, files: dict[str, str], root: bool, expected: str
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert explain_network_error("user", errno.EPERM, proc=tmp_path, root=root).startswith(START + expected)


@pytest.mark.parametrize(
    ("step", "number", "expected"),
    [
        ("user", errno.EINVAL, "this kernel has no user namespaces (CONFIG_USER_NS)"),
        ("bridge", errno.EOPNOTSUPP, "this kernel has no `bridge`; load it, as root: `modprobe bridge`"),
        ("veth", errno.EOPNOTSUPP, "this kernel has no `veth`; load it, as root: `modprobe veth`"),
        ("owners", errno.EMFILE, "Too many open files; `ulimit -Hn` shows the limit"),
        ("veth", errno.ENOMEM, "Cannot allocate memory (veth)"),
    ],
)
def test_other_errors_are_explained(tmp_path: Path, step: str, number: int, expected: str) -> None:
    assert explain_network_error(step, number, proc=tmp_path, root=False) == START + expected
