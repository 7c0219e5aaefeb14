"""A system that forbids private networks: no run is created, and one sentence names what to allow."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from drumline.run.state import Phase
from scaffold.waiting import wait_until
from scaffold.workspace import Workspace

pytestmark = pytest.mark.usefixtures("private_networks")

NETWORK = "engine: {local: {network: private}}"
SPEC = f"run: echo hello\n{NETWORK}"

# Executes a command that may not call `unshare`, as in a container: a seccomp filter refuses this call.
FILTERED = """
import ctypes, os, struct, sys
number = int(sys.argv[1])
program = b"".join(struct.pack("=HBBI", *each) for each in (
    (0x20, 0, 0, 0),               # load the number of the call
    (0x15, 0, 1, number),          # if it is not this one, skip the next
    (0x06, 0, 0, 0x00050000 | 1),  # answer EPERM
    (0x06, 0, 0, 0x7FFF0000),      # allow it
))
buffer = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer)))
libc = ctypes.CDLL(None, use_errno=True)
for option, value, pointer in ((38, 1, None), (22, 2, filter)):
    if libc.prctl(option, value, pointer, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
os.execvp(sys.argv[2], sys.argv[2:])
"""
UNSHARE = {"x86_64": 272, "aarch64": 97}


def refused(workspace: Workspace) -> str:
    """Return the error of a `train` that is refused."""
    workspace.write_spec(SPEC)
    answer = workspace.run("train", "-d")
    assert (answer.code, answer.out) == (3, "")
    assert workspace.runs() == []
    (said,) = answer.err.splitlines()
    return said


@pytest.mark.parametrize("switch", ["max_user_namespaces", "max_net_namespaces", "max_uts_namespaces"])
def test_a_namespace_limit_of_zero_is_named_as_the_reason_for_no_private_network(
    workspace: Workspace, switch: str
) -> None:
    # The limits are those of a user namespace: in one of our own they can be lowered without effect on others.
    workspace.command_prefix = ("unshare", "-Ur", "sh", "-c", f'echo 0 > /proc/sys/user/{switch} && exec "$@"', "sh")
    assert refused(workspace) == (
        f"error: a private network cannot be created on this machine: `user.{switch}` is 0;"
        f" allow more, as root: `sysctl -w user.{switch}=10000`"
    )


def test_a_reached_namespace_limit_is_named_as_the_reason_for_no_private_network(workspace: Workspace) -> None:
    workspace.command_prefix = (
        "unshare",
        "-Ur",
        "sh",
        "-c",
        'echo 1 > /proc/sys/user/max_net_namespaces && exec "$@"',
        "sh",
    )
    assert "all 1 that `user.max_net_namespaces` allows are in use" in refused(workspace)


def test_a_seccomp_filter_is_named_as_the_reason_for_no_private_network(workspace: Workspace) -> None:
    workspace.command_prefix = (sys.executable, "-c", FILTERED, str(UNSHARE[platform.machine()]))
    assert "a seccomp filter forbids user namespaces" in refused(workspace)
    assert "`docker run --security-opt seccomp=unconfined`" in refused(workspace)


def test_check_and_render_report_that_a_private_network_cannot_be_created(workspace: Workspace) -> None:
    workspace.write_spec(SPEC)
    assert (workspace.run("check").code, workspace.run("render").code) == (0, 0)
    workspace.command_prefix = (
        "unshare",
        "-Ur",
        "sh",
        "-c",
        'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"',
        "sh",
    )
    checked, rendered = workspace.run("check"), workspace.run("render")
    assert checked.code == 3
    assert "drumline.yml cannot start" in checked.out
    assert rendered.code == 0
    for answer in (checked, rendered):
        assert "a private network cannot be created on this machine: `user.max_user_namespaces` is 0" in answer.err


def test_a_private_network_forbidden_before_the_next_attempt_ends_the_run_with_the_same_words(
    workspace: Workspace,
) -> None:
    workspace.command_prefix = ("unshare", "-Ur")
    run = workspace.train(
        f"{NETWORK}\nrestart: 1\nrun: echo $$ > $HERE/up; until [ -e $HERE/go ]; do sleep 0.05; done; exit 3"
    )
    workspace.wait_numbers("up", 1)
    lower = ["sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces"]
    subprocess.run(["nsenter", "-U", "-t", str(wait_until(run.supervisor)), *lower], check=True)
    workspace.write("go", "")
    run.wait_for(Phase.FAILED)
    assert (
        "a private network cannot be created on this machine: `user.max_user_namespaces` is 0"
        in workspace.run("status", run.id).out
    )


def test_a_run_with_too_few_descriptors_for_its_network_fails_with_the_reason(workspace: Workspace) -> None:
    workspace.command_prefix = ("prlimit", "--nofile=30:30")
    run = workspace.train(f"{SPEC}\nroles: {{worker: 20}}")
    run.wait_for(Phase.FAILED)
    assert (
        "a private network cannot be created on this machine: Too many open files"
        in workspace.run("status", run.id).out
    )
