"""A minute without an API server, and then the loss of a node, in a cluster that only this test uses."""

from __future__ import annotations

import os

import pytest

from cluster.conftest import Kubectl
from cluster.own import OwnCluster, own_cluster
from drumline.run.event import AttemptPlaced, EngineWarned, ReplicaExited, ReplicaStarted
from drumline.run.state import Phase
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

LONG_SECONDS = 900.0
PER_SECOND = 4
SPEC = """
run: python3 train.py
roles: {worker: 2}
restart: {budget: 0, lost: 1}
engine:
  kubernetes:
    namespace: default
    image: python:local
    lost: 40s
    pod:
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector: {matchLabels: {drumline.dev/role: worker}}
"""
# Long in the first attempt, and short in the second.
SCRIPT = f"""
import os, time
for number in range([100000, 8][int(os.environ["DRUMLINE_ATTEMPT"])]):
    print(f"line {{number}}", flush=True)
    time.sleep({1 / PER_SECOND})
"""


def lines(text: bytes) -> list[bytes]:
    return [line for line in text.split(b"\n") if line]


def numbered(number: int) -> list[bytes]:
    return [b"line %d" % each for each in range(number)]


def nodes(run: Run, attempt: int) -> dict[str, str]:
    """Return the node of each replica of an attempt."""
    starts = [each for each in run.events if isinstance(each, ReplicaStarted) and each.attempt == attempt]
    return {str(each.replica): each.note.removeprefix("on ") for each in starts}


def stop_api_server_for_a_minute(cluster: OwnCluster, run: Run) -> None:
    """Check that the run continues, no replica counts as lost, and logs are complete after the server's return."""
    before = len(lines(run.log("worker.0")))
    cluster.kill("apiserver")
    there = f"{before + 60 * PER_SECOND}\n".encode()
    wait_until(lambda: any(b"line " + there in cluster.node_log(node, "worker-0") for node in (1, 2)), LONG_SECONDS)
    assert len(run.log("worker.0").split(b"\n")) < before + 30 * PER_SECOND
    cluster.restart("apiserver")
    wait_until(lambda: b"line " + there in run.log("worker.0"), LONG_SECONDS)
    assert not any(isinstance(event, ReplicaExited) for event in run.events)


@pytest.mark.timeout(2400)  # four minutes on an idle machine
def test_a_run_survives_a_minute_without_an_api_server_and_the_loss_of_a_node(workspace: Workspace) -> None:
    if "DRUMLINE_CLUSTER" not in os.environ:
        pytest.skip("needs the shared cluster to be started by scripts/cluster/run")
    with own_cluster() as cluster:
        workspace.env["KUBECONFIG"] = str(cluster.kubeconfig)
        workspace.command_prefix = cluster.namespace_prefix
        workspace.write("train.py", SCRIPT)
        run = workspace.train(SPEC, "--on", "kubernetes")
        wait_until(lambda: all(b"line 4\n" in run.log(f"worker.{index}") for index in (0, 1)), LONG_SECONDS)
        at = nodes(run, 0)
        assert sorted(at.values()) == ["node1", "node2"]
        stop_api_server_for_a_minute(cluster, run)

        (dead,) = (worker for worker, node in at.items() if node == "node2")
        written = len(lines(cluster.node_log(2, dead.replace(".", "-"))))
        wait_until(lambda: len(lines(run.log(dead))) >= written, LONG_SECONDS)  # later lines may never be read
        cluster.kill_node(2)
        run.wait_for(Phase.FINISHED, LONG_SECONDS)

        (cause,) = run.state.causes
        assert (str(cause.replica), cause.reason, cause.failure) == (dead, "NodeLost", "lost")
        assert "node2 does not answer" in cause.exit.message
        warnings = [event.message for event in run.events if isinstance(event, EngineWarned)]
        assert "node2 does not answer; its pods count as lost in 40s" in warnings
        assert nodes(run, 1) == {"worker.0": "node1", "worker.1": "node1"}
        for worker in at:
            assert lines(run.log(worker, 1)) == numbered(8)
            kept = lines(run.log(worker, 0))
            assert kept == numbered(len(kept))
        assert written <= len(lines(run.log(dead, 0))) <= len(lines(cluster.node_log(2, dead.replace(".", "-"))))
        assert [event.attempt for event in run.events if isinstance(event, AttemptPlaced)] == [0, 1]
        kubectl = Kubectl("default", (*cluster.namespace_prefix, "kubectl", "--kubeconfig", str(cluster.kubeconfig)))
        assert kubectl.items("pods,jobs,services,configmaps", "drumline.dev/run") == []
