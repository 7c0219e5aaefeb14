"""Real TensorFlow over two nodes: the same spec, the same script and the same numbers as on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.conftest import Kubectl
from drumline.run.event import ReplicaExited
from drumline.run.state import Phase
from scaffold.environments import ROOT, find_python
from scaffold.rendered_gang import accuracies, losses
from scaffold.workspace import Workspace
from training.examples import open_workspace, said, train_to_the_end

KINDS = ("kubernetes", "jobset", "tfjob")
WORKERS = ("worker.0", "worker.1")
LONG_SECONDS = 900.0


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path) as workspace:
        yield workspace


def engine(kind: str, namespace: str, project: str) -> str:
    """Return options for pods with this machine's TensorFlow environment, spread over the nodes."""
    environment = find_python("tensorflow").parents[1]
    packages = next(environment.glob("lib/python3.*/site-packages"))
    return f"""
env: {{TF_CPP_MIN_LOG_LEVEL: "2", PYTHONPATH: {packages}}}
engine:
  {kind}:
    namespace: {namespace}
    image: python:local
    output: {{size: 1GiB, class: shared, access: ReadWriteMany}}
    pod:
      containers:
        - {{name: replica, volumeMounts: [{{name: environment, mountPath: {environment}, readOnly: true}}]}}
      volumes:
        - {{name: environment, hostPath: {{path: {environment}, type: Directory}}}}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {{matchLabels: {{drumline.dev/project: {project}, drumline.dev/role: worker}}}}
"""


def bring(workspace: Workspace, example: str, *, rest: str = "", without: tuple[str, ...] = ()) -> None:
    """Copy an example into the workspace, with other values for these keys of its spec."""
    shutil.copytree(ROOT / "examples" / example, workspace.project, dirs_exist_ok=True)
    kept, skipping = [], False
    for line in (workspace.project / "drumline.yml").read_text().splitlines():
        skipping = line.split(":")[0] in without or (skipping and line.startswith(" "))
        kept += [] if skipping else [line]
    workspace.write("drumline.yml", "\n".join(kept) + rest)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, float]]:
    """Return the losses of two workers on this machine, for each epoch."""
    with open_workspace(tmp_path_factory.mktemp("here")) as workspace:
        bring(workspace, "keras_mnist")
        spec = (workspace.project / "drumline.yml").read_text()
        workspace.write("drumline.yml", spec.replace("run: python", f"run: {find_python('tensorflow')}"))
        run = train_to_the_end(workspace, "-p", "epochs=2", "--no-warm")
        return {"loss": losses(said(run, "worker.0")), "accuracy": accuracies(said(run, "worker.0"))}


@pytest.mark.parametrize("kind", KINDS)
def test_two_workers_on_two_nodes_learn_the_same_as_on_this_machine(
    workspace: Workspace, kubectl: Kubectl, kind: str, here: dict[str, dict[int, float]]
) -> None:
    bring(workspace, "keras_mnist", rest=engine(kind, kubectl.namespace, "keras-mnist"), without=("env", "restart"))
    run = train_to_the_end(workspace, "--on", kind, "-p", "epochs=2", seconds=LONG_SECONDS)
    for worker in WORKERS:
        assert losses(said(run, worker)) == pytest.approx(here["loss"], rel=1e-3)
    assert accuracies(said(run, "worker.0")) == pytest.approx(here["accuracy"], abs=0.005)
    ends = {str(each.replica): each.exit.code for each in run.events if isinstance(each, ReplicaExited)}
    assert ends == dict.fromkeys(WORKERS, 0)
    assert kubectl.items("pods,jobs,services,configmaps,networkpolicies", "drumline.dev/run") == []
    (claim,) = kubectl.items("persistentvolumeclaims", "drumline.dev/run")  # of the model
    assert claim["status"]["phase"] == "Bound"


@pytest.mark.parametrize("kind", KINDS)
def test_parameter_servers_end_when_the_work_is_done(workspace: Workspace, kubectl: Kubectl, kind: str) -> None:
    bring(
        workspace,
        "parameter_server",
        rest=engine(kind, kubectl.namespace, "parameter-server"),
        without=("env", "restart"),
    )
    run = train_to_the_end(workspace, "--on", kind, seconds=LONG_SECONDS)
    assert run.state.phase is Phase.FINISHED
    assert run.state.replicas
    assert {state.phase for state in run.state.replicas.values()} == {Phase.FINISHED}
    assert kubectl.items("pods,jobs,services,configmaps,networkpolicies", "drumline.dev/run") == []
