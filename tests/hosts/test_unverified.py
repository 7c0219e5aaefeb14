"""A lost host that answers again: replicas that were reported as ended are ended on it, and it counts as verified."""

from __future__ import annotations

import pytest

from drumline.run.traces import UNREACHED
from hosts.host_cluster import HostCluster
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

LONG_SECONDS = 900.0
SPEC = """
run: python3 forever.py
roles: {worker: 3}
restart: {lost: 1}
engine: {ssh: {hosts: [h1, h2, h3], lost: 8s, lease: 10m}}
"""
SCRIPT = """
import time
for number in range(10**6):
    print(f"line {number}", flush=True)
    time.sleep(0.1)
"""


def trained_on(host_cluster: HostCluster, name: str) -> list[int]:
    return [each.pid for each in host_cluster.processes(name) if "forever.py" in each.argv]


def wait_said(run: Run, attempt: int) -> None:
    wait_until(lambda: all(b"line 3\n" in run.log(f"worker.{index}", attempt) for index in range(3)), LONG_SECONDS)


@pytest.mark.parametrize("replaced", [False, True])
def test_replicas_that_were_reported_as_ended_without_proof_are_ended_when_their_host_answers_again(
    workspace: Workspace, host_cluster: HostCluster, *, replaced: bool
) -> None:
    workspace.write("forever.py", SCRIPT)
    run = workspace.train(SPEC)
    wait_said(run, 0)
    (before,) = trained_on(host_cluster, "h2")
    host_cluster.link("h2", up=False)
    wait_said(run, 1)  # on the other two
    assert trained_on(host_cluster, "h2") == [before]
    assert (run.path / UNREACHED).read_text() == "h2\n"
    if replaced:  # the new supervisor reads that the host is unverified, but not which incarnations it has
        run.kill_supervisor()
        assert workspace.run("supervise", run.id).code == 0
    host_cluster.link("h2", up=True)
    wait_until(lambda: not trained_on(host_cluster, "h2"), LONG_SECONDS)
    wait_until(lambda: not (run.path / UNREACHED).exists(), LONG_SECONDS)
    assert len(trained_on(host_cluster, "h1") + trained_on(host_cluster, "h3")) == 3
    answer = workspace.run("kill", run.id)
    assert answer.code == 0, answer
    assert answer.out == f"killed run {run.id}; none of its processes is left\n"
