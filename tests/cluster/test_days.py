"""Whole runs with faults: an API server that is cut off, slow, busy or unavailable, and a supervisor that is killed.

Each state is reported once, and every log line is there once.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from cluster.breaker import Breaker, Request
from cluster.conftest import Kubectl
from drumline.run.event import ReplicaStarted
from drumline.run.state import Phase
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

IMAGE = "python:local"
LINES = 120
LONG_SECONDS = 900.0
SCRIPT = f"""
import time
for number in range({LINES}):
    print(f"line {{number}}", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def workspace(workspace: Workspace, tmp_path: Path, breaker: Breaker, kubectl: Kubectl) -> Workspace:
    """Return a workspace that reaches the cluster through the breaker."""
    workspace.env["KUBECONFIG"] = str(breaker.kubeconfig(tmp_path / "kubeconfig", kubectl.namespace))
    workspace.write("train.py", SCRIPT)
    return workspace


def train(workspace: Workspace, kubectl: Kubectl, rest: str = "") -> Run:
    engine = f"engine: {{kubernetes: {{namespace: {kubectl.namespace}, image: {IMAGE}}}}}"
    return workspace.train(f"run: python3 train.py\nroles: {{worker: 2}}\n{engine}\n{rest}", "--on", "kubernetes")


def wait_line(run: Run, replica: str, number: int, attempt: int = 0) -> None:
    wait_until(lambda: b"line %d\n" % number in run.log(replica, attempt), LONG_SECONDS)


def check(run: Run, kubectl: Kubectl, *, supervisors: int = 1) -> None:
    """Check that each replica exited once, with 0, every log line is there once, and nothing is left."""
    run.wait_for(Phase.FINISHED, LONG_SECONDS)
    starts = Counter(str(event.replica) for event in run.events if isinstance(event, ReplicaStarted))
    assert all(1 <= starts[worker] <= supervisors for worker in ("worker.0", "worker.1")), starts
    assert sorted(str(event.replica) for event in run.exits()) == ["worker.0", "worker.1"]
    for worker in ("worker.0", "worker.1"):
        assert run.exit(worker).code == 0
        assert run.log(worker) == b"".join(b"line %d\n" % number for number in range(LINES))
    assert run.said() == ""
    assert kubectl.items("pods,jobs,services,configmaps,networkpolicies,secrets", "drumline.dev/run") == []


def is_watch(request: Request) -> bool:
    return request.is_watch


def test_a_run_continues_when_connections_are_cut_repeatedly(
    workspace: Workspace, kubectl: Kubectl, breaker: Breaker
) -> None:
    run = train(workspace, kubectl)
    for number in range(0, LINES - 20, 10):
        wait_line(run, "worker.1", number)
        breaker.cut()
    check(run, kubectl)


def test_a_restart_continues_when_the_api_server_is_unavailable_meanwhile(
    workspace: Workspace, kubectl: Kubectl, breaker: Breaker
) -> None:
    run = train(workspace, kubectl)
    wait_line(run, "worker.0", 20)
    breaker.stop_serving()
    first = ("-l", "drumline.dev/role=worker,drumline.dev/index=0", "-c", "replica")
    wait_until(lambda: "line 100\n" in kubectl("logs", *first, "--tail=-1", check=False), LONG_SECONDS)
    breaker.serve_again()
    check(run, kubectl)


def test_exits_are_reported_when_the_api_server_is_unavailable_at_the_end(
    workspace: Workspace, kubectl: Kubectl, breaker: Breaker
) -> None:
    run = train(workspace, kubectl)
    wait_line(run, "worker.0", LINES - 30)
    breaker.stop_serving()
    kubectl("wait", "pods", "--all", "--for=jsonpath={.status.phase}=Succeeded", f"--timeout={LONG_SECONDS:.0f}s")
    breaker.serve_again()
    check(run, kubectl)


def test_a_run_continues_with_a_busy_and_slow_api_server_that_expires_watches(
    workspace: Workspace, kubectl: Kubectl, breaker: Breaker
) -> None:
    breaker.fail(lambda request: request.method == "POST", times=2, status=429, headers=("Retry-After: 1",))
    breaker.fail(lambda request: request.method == "GET", times=2, status=500)
    breaker.fail(is_watch, times=2, gone=True)
    breaker.fail(delay_seconds=1.5, times=3)
    run = train(workspace, kubectl)
    wait_line(run, "worker.0", 30)
    breaker.fail(is_watch, times=3, gone=True)
    breaker.cut()
    wait_line(run, "worker.0", 60)
    breaker.fail(is_watch, status=410)
    breaker.fail(lambda request: request.is_log, times=4, status=429, headers=("Retry-After: 1",))
    breaker.cut()
    breaker.fail(lambda request: request.method == "DELETE", times=2, status=409)
    breaker.fail(lambda request: request.method == "DELETE", times=2, status=503)
    check(run, kubectl)


def test_a_run_continues_when_its_supervisor_is_killed_repeatedly(
    workspace: Workspace, kubectl: Kubectl, breaker: Breaker
) -> None:
    run = train(workspace, kubectl)
    for number in (10, 30, 50, 70):
        wait_line(run, "worker.1", number)
        run.kill_supervisor()
        breaker.cut()
        assert workspace.run("supervise", run.id).code == 0
    check(run, kubectl, supervisors=5)


def test_a_supervisor_that_returns_after_the_end_of_all_replicas_finds_all_logs(
    workspace: Workspace, kubectl: Kubectl
) -> None:
    run = train(workspace, kubectl)
    wait_line(run, "worker.1", 30)
    run.kill_supervisor()
    kubectl("wait", "pods", "--all", "--for=jsonpath={.status.phase}=Succeeded", f"--timeout={LONG_SECONDS:.0f}s")
    assert workspace.run("supervise", run.id).code == 0
    check(run, kubectl, supervisors=2)


def evict(kubectl: Kubectl, pod: str) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": kubectl.namespace},
    }
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/eviction"
    kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction))


def pod_of(kubectl: Kubectl, index: int) -> str:
    (pod,) = kubectl.items("pods", f"drumline.dev/role=worker,drumline.dev/index={index}")
    return str(pod["metadata"]["name"])


def test_an_evicted_replica_is_preempted_and_the_gang_starts_again(workspace: Workspace, kubectl: Kubectl) -> None:
    workspace.write("train.py", f"import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n{SCRIPT}")
    run = train(workspace, kubectl, "restart: {budget: 0, preempted: 1}")
    for worker in ("worker.0", "worker.1"):
        wait_line(run, worker, 10)
    evict(kubectl, pod_of(kubectl, 1))
    run.wait_for(Phase.FINISHED, LONG_SECONDS)
    (cause,) = run.state.causes
    assert (str(cause.replica), cause.reason, cause.failure) == ("worker.1", "Evicted", "preempted")
    assert "as by `kubectl drain`" in cause.exit.message
    assert run.log("worker.0", 1) == b"".join(b"line %d\n" % number for number in range(LINES))


def test_the_deletion_of_a_pod_is_reported_and_its_log_is_kept(workspace: Workspace, kubectl: Kubectl) -> None:
    run = train(workspace, kubectl)
    wait_line(run, "worker.1", 10)
    kubectl("delete", "pod", pod_of(kubectl, 1), "--wait=false")
    run.wait_for(Phase.FAILED, LONG_SECONDS)
    assert (str(run.cause.replica), run.cause.reason, run.cause.failure) == ("worker.1", "Deleted", "preempted")
    assert run.log("worker.1").startswith(b"line 0\nline 1\n")
