"""Replicas on hosts are forked from warm processes of the hosts, as on this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from drumline.run.event import ReplicaExited, ReplicaStarted
from drumline.run.state import Phase
from hosts.host import Process
from hosts.host_cluster import HOME, SHARED, HostCluster
from scaffold.workspace import Run, Workspace

SCRIPT = "import os\nprint('token', os.environ.get('TOKEN'), flush=True)\n"
WARM = "warm: {import: [colorsys], keep: 10m}\n"
NOTES = ["warm, on h1", "warm, on h1", "warm, on h2", "warm, on h2"]


@pytest.fixture
def hosts(host_cluster: HostCluster, workspace: Workspace) -> Iterator[HostCluster]:
    """Yield the hosts; their warm processes are killed before the workspace checks that no process is left."""
    workspace.write("train.py", SCRIPT)
    yield host_cluster
    for name in host_cluster.names:
        for process in warm_processes(host_cluster, name):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def warm_processes(host_cluster: HostCluster, name: str) -> list[Process]:
    return [
        each for each in host_cluster.processes(name) if any(word.endswith("/runtime/warm.py") for word in each.argv)
    ]


def train(workspace: Workspace, spec: str, **env: str) -> Run:
    run = workspace.train(spec, env=env)
    run.wait_for(Phase.FINISHED)
    return run


def notes(run: Run) -> list[str]:
    return sorted(event.note for event in run.events if isinstance(event, ReplicaStarted))


def spec(more: str = "") -> str:
    return f"run: python train.py\nroles: {{worker: 4}}\n{WARM}engine: {{ssh: {{hosts: [h1, h2]{more}}}}}\n"


def test_each_host_has_one_warm_process_that_the_next_run_uses(workspace: Workspace, hosts: HostCluster) -> None:
    runs = [train(workspace, spec()) for _ in range(2)]
    assert [notes(run) for run in runs] == [NOTES] * 2
    assert all(run.log(f"worker.{number}") == b"token None\n" for run in runs for number in range(4))
    for name in ("h1", "h2"):
        (process,) = warm_processes(hosts, name)
        assert process.argv[-1] == "colorsys"
        assert hosts.path(name, f"{HOME}/.local/share/drumline/agents/{name}/warm").is_dir()


def test_hosts_that_share_a_folder_have_a_warm_process_each_and_none_has_a_secret(
    workspace: Workspace, hosts: HostCluster
) -> None:
    text = spec(f", folder: {SHARED}/one-home") + "env: {TOKEN: {from: TOKEN}}\n"
    run = train(workspace, text, TOKEN="sesame")
    assert notes(run) == NOTES
    assert all(run.log(f"worker.{number}") == b"token sesame\n" for number in range(4))
    found = [process for name in ("h1", "h2") for process in warm_processes(hosts, name)]
    assert len(found) == 2
    for process in found:
        assert b"sesame" not in Path(f"/proc/{process.pid}/environ").read_bytes()


def test_a_warm_replica_of_an_interpreter_that_does_not_find_drumline_ends_with_its_own_exit_code(
    workspace: Workspace, hosts: HostCluster
) -> None:
    workspace.write("train.py", "raise SystemExit(7)\n")
    run = workspace.train(spec() + "env: {PYTHONPATH: /usr/none}\n")
    run.wait_for(Phase.FAILED)
    assert {note.split(",")[0] for note in notes(run)} == {"warm"}  # the first exit may stop others before they start
    assert 7 in {event.exit.code for event in run.events if isinstance(event, ReplicaExited)}
