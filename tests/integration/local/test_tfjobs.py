"""TFJobs of the operator's own test suite, run on this machine with the same expected behaviour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from drumline.run.state import Phase
from scaffold.waiting import wait_until
from scaffold.workspace import Answer, Run, Workspace

# Fails only once, as the first container of a pod.
FIRST = "[ -e went-{0} ] || {{ : > went-{0}; exit {1}; }}"
WAITS = "sleep 600"


def a_role(command: str, policy: str = "Never", replicas: int = 1) -> dict[str, Any]:
    container = {"name": "tensorflow", "image": "any", "command": ["sh", "-c", command]}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": pod}}


def train(workspace: Workspace, roles: dict[str, Any], **policies: Any) -> tuple[Answer, Run]:
    """Run a TFJob to its end."""
    spec = {"runPolicy": {"backoffLimit": 3, **policies}, "tfReplicaSpecs": roles}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "digits"}, "spec": spec}
    Path(workspace.project / "tfjob.yaml").write_text(yaml.safe_dump(job))
    return workspace.run("train", "--no-warm", "-f", "tfjob.yaml"), workspace.runs()[-1]


def phases(run: Run) -> dict[str, Phase]:
    return {str(name): replica.phase for name, replica in run.state.replicas.items()}


@pytest.mark.parametrize("policy", ["All", "Running", "None"])
def test_the_chief_ends_the_job_and_no_process_is_left_whatever_was_to_be_cleaned_up(
    workspace: Workspace, policy: str
) -> None:
    roles = {"Chief": a_role("echo done"), "Worker": a_role(WAITS, replicas=2), "PS": a_role(WAITS)}
    answer, run = train(workspace, roles, cleanPodPolicy=policy)
    assert (answer.code, run.state.phase) == (0, Phase.FINISHED)
    assert ("cleanPodPolicy" in answer.err) == (policy == "None")
    wait_until(lambda: not workspace.processes())
    assert run.log("chief.0") == b"done\n"  # the log outlives its replica


def test_without_a_chief_the_first_worker_ends_the_job(workspace: Workspace) -> None:
    answer, run = train(workspace, {"Worker": a_role(f"[ $DRUMLINE_INDEX = 0 ] || {WAITS}", replicas=2)})
    assert (answer.code, phases(run)["worker.0"]) == (0, Phase.FINISHED)
    wait_until(lambda: not workspace.processes())


@pytest.mark.parametrize(
    ("policy", "code", "attempts", "phase"),
    [
        ("Always", 0, 1, Phase.FINISHED),  # the operator would start it again for ever
        ("Always", 1, 2, Phase.FINISHED),
        ("OnFailure", 0, 1, Phase.FINISHED),
        ("OnFailure", 1, 2, Phase.FINISHED),
        ("Never", 0, 1, Phase.FINISHED),
        ("Never", 1, 1, Phase.FAILED),
        ("ExitCode", 1, 1, Phase.FAILED),  # permanent
        ("ExitCode", 130, 2, Phase.FINISHED),  # may succeed if it is repeated
    ],
)
def test_which_replicas_restart_after_which_failure(
    workspace: Workspace, policy: str, code: int, attempts: int, phase: Phase
) -> None:
    answer, run = train(workspace, {"Worker": a_role(FIRST.format("once", code), policy)})
    assert (run.state.phase, run.state.attempt + 1) == (phase, attempts)
    assert answer.code == (0 if phase is Phase.FINISHED else 1)


def test_a_job_that_fails_repeatedly_has_failed_when_its_limit_is_reached(workspace: Workspace) -> None:
    answer, run = train(workspace, {"Worker": a_role("exit 3", "OnFailure")}, backoffLimit=1)
    assert (answer.code, run.state.phase, run.state.attempt) == (1, Phase.FAILED, 1)


def test_an_invalid_job_starts_nothing(workspace: Workspace) -> None:
    workspace.write("tfjob.yaml", "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: a}\nspec: {}\n")
    answer = workspace.run("train", "-f", "tfjob.yaml")
    assert (answer.code, workspace.runs()) == (2, [])
    assert answer.err.startswith("tfjob.yaml:4: spec.tfReplicaSpecs: is missing\n")
