"""Another user of the namespace writes objects that look like a run's: none of them is taken for the run's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.conftest import Kubectl
from cluster.test_engine import KINDS, LASTS, WAITS, left, let_go, spec, until_said
from drumline.engine.kubernetes import names
from drumline.plan.types import ReplicaId
from drumline.run.event import ReplicaExited
from drumline.run.incarnation import Incarnation
from drumline.run.state import Phase
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

WORKER = ReplicaId("worker", 0)


def pod_of(kubectl: Kubectl, run: Run, index: int) -> dict[str, Any]:
    """Return the pod of a worker of the first attempt."""
    wanted = Incarnation(ReplicaId("worker", index), 0, 0)
    plan = run.folder.plan()
    return next(each for each in kubectl.items("pods") if names.incarnation_of(plan, each["metadata"]) == wanted)


def plant(kubectl: Kubectl, name: str, labels: dict[str, str], script: str) -> None:
    """Create a pod with these labels that runs a script to its end."""
    container = {"name": "replica", "image": "python:local", "command": ["sh", "-c", script]}
    kubectl(
        "create",
        "-f",
        "-",
        given=json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "labels": labels},
                "spec": {"containers": [container], "restartPolicy": "Never"},
            }
        ),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_with_the_labels_of_a_replica_is_not_taken_for_it(
    workspace: Workspace, kubectl: Kubectl, kind: str
) -> None:
    run = workspace.train(
        spec(kubectl.namespace, f'run: "echo one; {WAITS}; echo two"\nroles: {{worker: 2}}', kind), "--on", kind
    )
    until_said(run, "worker.0", b"one")
    pods = [pod_of(kubectl, run, index)["metadata"] for index in (0, 1)]
    run.kill_supervisor()
    # A Job adopts a pod with its labels, and this one comes first in a list.
    adopted = f"{pods[0]['name'][:-5]}00000"
    plant(kubectl, adopted if kind != "tfjob" else "aaa-adopted", pods[0]["labels"], "echo forged; exit 3")
    plant(kubectl, "aaa-copied", without_controller(pods[0]["labels"]), "echo forged; exit 3")
    plant(kubectl, "aaa-broken", {**without_controller(pods[0]["labels"]), names.INDEX: "x"}, "exit 3")
    wait_until(lambda: kubectl("get", "pod", "aaa-copied", "-o", "jsonpath={.status.phase}") == "Failed")
    for each in pods:
        kubectl("exec", each["name"], "--", "touch", "/tmp/go")
    assert workspace.run("supervise", "1").code == 0
    run.wait_for(Phase.FINISHED)
    assert run.log("worker.0") == b"one\ntwo\n"
    assert [event.exit.code for event in run.events if isinstance(event, ReplicaExited)] == [0, 0]
    assert {"Pod/aaa-copied", "Pod/aaa-broken"} <= left(kubectl)  # they are not deleted with the run


def without_controller(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels of drumline alone: no controller of the cluster knows a pod by them."""
    return {name: value for name, value in labels.items() if name.startswith(names.PREFIX)}


def test_kill_does_not_wait_for_a_pod_of_another_user_with_the_labels_of_a_replica(
    workspace: Workspace, kubectl: Kubectl
) -> None:
    run = workspace.train(spec(kubectl.namespace, f'run: "{LASTS}"\nroles: {{worker: 2}}'), "--on", "kubernetes")
    run.wait_for(Phase.RUNNING)
    plant(kubectl, "copied", without_controller(pod_of(kubectl, run, 0)["metadata"]["labels"]), "sleep 3600")
    plant(kubectl, "broken", {names.RUN: names.base(run.folder.plan()), names.ROLE: "worker", names.INDEX: "x"}, LASTS)
    assert workspace.run("kill", "--force", "1").code == 0
    run.wait_for(Phase.KILLED)
    assert {each for each in left(kubectl) if each.startswith("Pod/")} == {"Pod/copied", "Pod/broken"}


def test_a_job_under_the_name_of_the_next_attempt_is_not_adopted(workspace: Workspace, kubectl: Kubectl) -> None:
    text = f"""
    run: "[ $DRUMLINE_ATTEMPT = 1 ] || {{ {WAITS}; exit 3; }}"
    roles: {{worker: 1}}
    restart: {{crash: 1, early: 1}}
    """
    run = workspace.train(spec(kubectl.namespace, text), "--on", "kubernetes")
    run.wait_for(Phase.RUNNING)
    plan = run.folder.plan()
    name = names.job(plan, WORKER, 1)
    owner = kubectl("get", "configmap", names.base(plan), "-o", "jsonpath={.metadata.uid}")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": names.base(plan), "uid": owner}
    labels = names.labels_of(plan, WORKER, 1, 0)
    container = {"name": "replica", "image": "python:local", "command": ["sh", "-c", "echo forged"]}
    planted = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [reference]},
        "spec": {
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "restartPolicy": "Never"},
            }
        },
    }
    kubectl("create", "-f", "-", given=json.dumps(planted))
    let_go(run, kubectl, 0)
    run.wait_for(Phase.FAILED)
    assert "forged" not in run.log("worker.0", 1).decode()
    shown = workspace.run("status", "1")
    assert f"has a Job {name} that this run has not created" in shown.out + shown.err
