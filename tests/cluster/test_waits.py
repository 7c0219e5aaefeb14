"""Gangs that cannot be placed completely: each replica's reason is reported once, and all objects are deleted."""

from __future__ import annotations

import json
from collections import Counter
from typing import NamedTuple

import pytest

from cluster.conftest import Kubectl
from drumline.run.event import ReplicaWaits
from drumline.run.state import Phase
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

IMAGE = "python:local"
LONG_SECONDS = 900.0


class Case(NamedTuple):
    """A spec that cannot start, and the expected message."""

    engine: str = ""
    spec: str = ""
    image: str = IMAGE
    word: str = ""
    says: str = ""
    reason: str = "StartTimeout"


CASES = {
    "an image that is nowhere": Case(
        image="registry.invalid/team/train:1",
        word="ImagePull",
        says="its image registry.invalid/team/train:1 cannot be",
    ),
    "more CPUs than any node has": Case(
        spec="resources: {cpus: 500}", word="Unschedulable", says="have too few free CPUs; it asks for 500 CPUs"
    ),
    "a node that is not there": Case(
        engine="node_selector: {pool: a100}", word="Unschedulable", says="do not match its node selector"
    ),
    "a claim that is not there": Case(
        engine="output: {claim: nothere}", word="Volume", says="its claim nothere does not exist"
    ),
    "an invalid image name": Case(
        image='"Team/Train image"', word="ImagePull", says="the name of its image is not valid", reason="CannotStart"
    ),
    "a secret that is not there": Case(
        engine="pod: {containers: [{name: replica, env: [{name: TOKEN, valueFrom:"
        " {secretKeyRef: {name: nothere, key: TOKEN}}}]}]}",
        word="Config",
        says='its container cannot be created: secret "nothere" not found',
        reason="CannotStart",
    ),
    "a volume that cannot be mounted": Case(
        engine="pod: {volumes: [{name: settings, configMap: {name: nothere}}],"
        " containers: [{name: replica, volumeMounts: [{name: settings, mountPath: /settings}]}]}",
        word="Volume",
        says='configmap "nothere" not found',
    ),
}


def train(workspace: Workspace, kubectl: Kubectl, case: Case) -> Run:
    engine = ", ".join(filter(None, (f"namespace: {kubectl.namespace}", f"image: {case.image}", case.engine)))
    patience = "30s" if case.reason == "StartTimeout" else "5m"
    spec = f"run: sleep 600\nroles: {{worker: 2}}\ntimeouts: {{start: {patience}, grace: 1s}}"
    return workspace.train(f"{spec}\nengine: {{kubernetes: {{{engine}}}}}\n{case.spec}", "--on", "kubernetes")


def waits(run: Run) -> list[ReplicaWaits]:
    return [event for event in run.events if isinstance(event, ReplicaWaits)]


def check_end(run: Run, kubectl: Kubectl, case: Case) -> None:
    """Check that the run has failed for that reason, each replica reported it once, and nothing is left."""
    run.wait_for(Phase.FAILED, LONG_SECONDS)
    assert run.cause.reason == case.reason
    assert case.says in run.cause.exit.message
    told = Counter((each.replica, each.message) for each in waits(run) if each.reason == case.word)
    assert set(told.values()) == {1}, told
    found = json.loads(workspace_says(run.workspace, "status", run.id, "-o", "json"))
    assert case.says in found["message"]
    assert case.says in workspace_says(run.workspace, "events", run.id)
    assert kubectl.items("pods,jobs,services,configmaps,networkpolicies", "drumline.dev/run") == []


def workspace_says(workspace: Workspace, *words: str) -> str:
    answer = workspace.run(*words)
    assert answer.code == 0, answer.err
    return answer.out


@pytest.mark.parametrize("name", CASES)
def test_a_gang_that_cannot_start_reports_the_reason_and_frees_everything(
    workspace: Workspace, kubectl: Kubectl, name: str
) -> None:
    case = CASES[name]
    run = train(workspace, kubectl, case)
    if case.reason == "StartTimeout":
        wait_until(lambda: [each for each in waits(run) if each.reason == case.word], LONG_SECONDS)
        found = json.loads(workspace_says(workspace, "status", run.id, "-o", "json"))
        assert found["state"] == "STARTING"
        assert case.says in found["message"]
        assert case.word in [each["reason"] for each in found["replicas"]]
    check_end(run, kubectl, case)


def test_a_gang_that_can_only_start_in_part_frees_its_resources_after_the_timeout(
    workspace: Workspace, kubectl: Kubectl
) -> None:
    kubectl.make_quota("small", "pods=1")
    case = Case(word="Quota", says="it exceeds the quota small: it asks for pods=1; used pods=1 of pods=1")
    run = train(workspace, kubectl, case)
    check_end(run, kubectl, case)
    phases = {str(name): each.phase for name, each in run.state.replicas.items()}
    assert sorted(phases.values()) == [Phase.FAILED, Phase.KILLED]
    assert phases[str(run.cause.replica)] is Phase.FAILED
