"""Problems of hosts are reported before there is a run, with hints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.run.state import Phase
from hosts.host_cluster import HostCluster
from scaffold.workspace import Answer, Workspace

SPEC = "run: echo hello\nroles: {worker: 2}\n"


@pytest.fixture(scope="module")
def host_cluster() -> Iterator[HostCluster]:
    """Two hosts with little disk."""
    with HostCluster(2, disk="8m") as host_cluster:
        yield host_cluster


def refused(workspace: Workspace, *words: str, code: int = 2, spec: str = SPEC) -> Answer:
    """Return the answer of a `train` that starts nothing; the exit code is 2 if the user has to fix something first."""
    workspace.write_spec(spec)
    answer = workspace.run("train", *(words or ("--hosts", "h1,h2")))
    assert answer.code == code, answer
    assert not workspace.runs()
    return answer


def test_a_host_with_a_changed_key_is_refused_with_the_command_that_removes_the_old_key(
    workspace: Workspace, host_cluster: HostCluster
) -> None:
    host_cluster.new_host_key("h2")
    answer = refused(workspace)
    assert "the key of h2 is another than the one in" in answer.err
    assert f"ssh-keygen -f {host_cluster.known_hosts} -R 10.89.0.12" in answer.err
    host_cluster.trust(*host_cluster.names)
    assert workspace.run("train", "--hosts", "h1,h2").code == 0


def test_a_host_with_an_unknown_key_is_refused(workspace: Workspace, host_cluster: HostCluster) -> None:
    host_cluster.trust("h1")
    answer = refused(workspace)
    host_cluster.trust(*host_cluster.names)
    assert "the key of h2 is not known" in answer.err
    assert f"ssh-keyscan 10.89.0.12 >> {host_cluster.known_hosts}" in answer.err


def test_a_user_without_access_is_refused(workspace: Workspace) -> None:
    answer = refused(workspace, "--hosts", "h1,stranger@h2")
    assert "does not let stranger in" in answer.err
    assert "ssh-copy-id" in answer.err


def test_a_host_that_is_switched_off_is_reported(workspace: Workspace, host_cluster: HostCluster) -> None:
    host_cluster.link("h2", up=False)
    answer = refused(workspace, code=3)
    assert "h2" in answer.err
    assert "`ssh h2 true`" in answer.err


def test_a_host_without_an_sshd_is_reported(workspace: Workspace, host_cluster: HostCluster) -> None:
    host_cluster.kill_sshd("h2")
    answer = refused(workspace, code=3)
    host_cluster.start_sshd("h2")
    assert "h2 cannot be reached: connection refused" in answer.err


def test_the_problems_of_several_hosts_are_reported_together(workspace: Workspace, host_cluster: HostCluster) -> None:
    host_cluster.trust("h2")
    host_cluster.kill_sshd("h2")
    answer = refused(workspace)
    host_cluster.start_sshd("h2")
    host_cluster.trust(*host_cluster.names)
    assert answer.err.splitlines() == [
        "error: the key of h1 is not known",
        (
            f"hint: `ssh-keyscan 10.89.0.11 >> {host_cluster.known_hosts}` adds it, "
            "once you know that it is the host's own"
        ),
        "error: h2 cannot be reached: connection refused",
        "hint: try `ssh h2 true`",
    ]


def test_a_host_without_the_configured_python_is_reported(workspace: Workspace, host_cluster: HostCluster) -> None:
    workspace.write_spec(f"{SPEC}engine: {{ssh: {{hosts: [h1, h2], python: python3.99}}}}\n")
    answer = workspace.run("train")
    assert answer.code == 2
    assert "python3.99" in answer.err
    assert "ssh: {python: PATH}" in answer.err


def test_a_host_with_an_old_python_is_reported_with_the_version(
    workspace: Workspace, host_cluster: HostCluster
) -> None:
    pretend = "import sys; sys.version_info = (3, 9, 18); code = sys.argv.pop(1); exec(code)"
    for name in host_cluster.names:
        path = host_cluster.path(name, "/run/old")
        path.write_text(f'#!/bin/sh\nwhile [ "$1" != -c ]; do shift; done; shift\nexec python3 -c \'{pretend}\' "$@"\n')
        path.chmod(0o755)
    workspace.write_spec(f"{SPEC}engine: {{ssh: {{hosts: [h1, h2], python: /run/old}}}}\n")
    answer = workspace.run("train")
    assert answer.code == 2
    assert "Python 3.9.18" in answer.err
    assert "3.11 or newer" in answer.err


def test_a_host_with_a_full_disk_is_reported(workspace: Workspace, host_cluster: HostCluster) -> None:
    host_cluster.run("h2", "rm", "-rf", "/home/me/.cache", "/home/me/.local")  # left by earlier tests
    host_cluster.fill_disk("h2")
    answer = refused(workspace)
    host_cluster.empty_disk("h2")
    assert "h2" in answer.err
    assert "No space left on device" in answer.err
    assert "ssh: {folder: PATH}" in answer.err


def test_a_disk_that_fills_up_during_a_run_ends_it_and_names_the_host(
    workspace: Workspace, host_cluster: HostCluster
) -> None:
    workspace.write(
        "train.py",
        """
        import os

        model = os.environ["OUTPUT_DIR"] + "/model"
        try:
            open(model, "wb").write(bytes(64 << 20))
        except OSError:
            os.unlink(model)  # otherwise there would be no space for its message
            raise
        """,
    )
    workspace.write_spec("run: python3 train.py\nroles: {worker: 2}\nengine: {ssh: [h1, h2]}\n")
    answer = workspace.run("train")
    assert answer.code == 1
    assert "No space left on device" in answer.out
    (run,) = workspace.runs()
    run.wait_for(Phase.FAILED)  # and no replica is left on a host
    assert run.cause.failure in ("crash", "early")
    for name in host_cluster.names:
        host_cluster.run(name, "sh", "-c", "rm -rf /home/me/.local/share/drumline/runs")


def test_a_host_without_any_python_is_reported(workspace: Workspace, tmp_path: Path) -> None:
    with HostCluster(2) as bare:
        bare.without_python("h2")
        workspace.env |= bare.env
        answer = refused(workspace)
    assert "h2 has no Python that works as `python3`" in answer.err
    assert "install Python 3.11 or newer there" in answer.err
