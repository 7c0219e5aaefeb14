"""Fifty hosts, each with a small replica: started and killed, and nothing is left on any of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drumline.run.state import Phase
from hosts.host_cluster import HostCluster
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

LONG_SECONDS = 900.0
NUMBER = 50


@pytest.fixture(scope="module")
def host_cluster() -> Iterator[HostCluster]:
    with HostCluster(NUMBER, disk="64m", shared=True) as host_cluster:
        yield host_cluster


def test_a_run_on_fifty_hosts_starts_and_is_killed_completely(workspace: Workspace, host_cluster: HostCluster) -> None:
    spec = f"run: echo on $(hostname); exec sleep 1000\nroles: {{worker: {NUMBER}}}\n"
    workspace.write_spec(f"{spec}engine: {{ssh: [{', '.join(host_cluster.names)}]}}\n")
    answer = workspace.run("train", "-d", seconds=LONG_SECONDS)  # they share the cores with other tests
    assert answer.code == 0, answer
    run = Run(workspace, answer.out.strip())
    run.wait_for(Phase.RUNNING, LONG_SECONDS)
    wait_until(lambda: all(run.log(f"worker.{n}") for n in range(NUMBER)), LONG_SECONDS)
    assert [run.log(f"worker.{n}") for n in range(NUMBER)] == [
        b"on %s\n" % name.encode() for name in host_cluster.names
    ]
    wait_until(lambda: all(sleeping(host_cluster, name) for name in host_cluster.names), LONG_SECONDS)
    answer = workspace.run("kill", run.id, seconds=LONG_SECONDS)
    assert answer.code == 0, answer
    assert not any(sleeping(host_cluster, name) for name in host_cluster.names)
    assert run.state.phase is Phase.KILLED


def sleeping(host_cluster: HostCluster, name: str) -> bool:
    return any(each.argv[:1] == ("sleep",) for each in host_cluster.processes(name))
