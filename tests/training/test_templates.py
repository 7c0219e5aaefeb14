"""Every template of `drumline init` trains with real frameworks; its losses and accuracies are checked."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from drumline.run.state import Phase
from scaffold.rendered_gang import GANG_SECONDS, Project, accuracies, losses
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace
from training.examples import said, train_to_the_end
from training.scripts import NAME_THREADS

# Each prints how many examples of the test data the saved model predicts correctly.
READ_KERAS = """
import keras, numpy as np
from train import make_dataset
images, labels = next(iter(make_dataset(512, seed=2).batch(512)))
model = keras.models.load_model(os.environ["OUTPUT_DIR"] + "/model.keras")
print(np.mean(model(images).numpy().argmax(1) == labels.numpy()))
"""
READ_TORCH = """
import torch
from torch import nn
from train import OUTPUT_DIR, make_dataset
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
model.load_state_dict(torch.load(OUTPUT_DIR / "model.pt"))
images, labels = make_dataset(512, seed=2).tensors
print((model(images).argmax(1) == labels).float().mean().item())
"""
READ_JAX = """
import numpy as np
from train import OUTPUT_DIR, make_data, predict
images, labels = make_data(512, seed=2)
print(np.mean(predict(dict(np.load(OUTPUT_DIR / "model.npz")), images).argmax(1) == labels))
"""

LIST_THREADS = f"""{NAME_THREADS}
print("threads left:", names_of_threads("gloo"))
"""

WORKERS = ("worker.0", "worker.1")


@pytest.fixture
def make_project(workspace: Workspace, tmp_path: Path) -> Callable[[str, str], Project]:
    """Return a function that makes a template's project in the workspace, with the environment of its framework."""
    return lambda template, environment: Project(workspace.project, tmp_path, template, environment)


def train_by_hand(project: Project, *parameters: str) -> dict[str, str]:
    """Train with two workers that are started by hand from the rendered script; return the output of each."""
    with project.gang(*parameters) as gang:
        gang.start(*WORKERS)
        gang.finish(*WORKERS)
    return {replica: gang.output(replica) for replica in WORKERS}


def start(workspace: Workspace, project: Project, *parameters: str) -> Run:
    """Start `drumline train`, with a warm process so that the framework is not imported again."""
    answer = workspace.run("train", "-d", write_spec(project), *options(parameters))
    assert answer.code == 0, answer.err
    return Run(workspace, answer.out.strip())


def train(workspace: Workspace, project: Project, *parameters: str) -> dict[str, str]:
    """Train by `drumline train` to the end, with the files of earlier trainings; return the output of each replica."""
    run = train_to_the_end(workspace, write_spec(project), *options(parameters))
    return {str(replica): said(run, str(replica)) for replica in run.state.replicas}


def options(parameters: tuple[str, ...]) -> list[str]:
    return [word for parameter in parameters for word in ("-p", parameter)]


def write_spec(project: Project) -> str:
    """Write the template's spec with its framework's Python and the folders of `train_by_hand`; return its name."""
    spec = (project.folder / "drumline.yml").read_text().replace("run: python", f"run: {project.python}")
    folders = f"output: {project.output}\ncheckpoint: {project.output}/checkpoint\n"
    (project.folder / "there.yml").write_text(f"{spec}\n{folders}tensorboard: false\n")
    return "there.yml"


def is_falling(values: dict[int, float]) -> bool:
    ordered = [values[epoch] for epoch in sorted(values)]
    return ordered == sorted(ordered, reverse=True) and ordered[-1] < ordered[0] / 2


@pytest.mark.parametrize(
    ("template", "environment", "read_model"),
    [
        pytest.param("keras", "tensorflow", READ_KERAS, id="keras"),
        pytest.param("custom-loop", "tensorflow", READ_KERAS, id="custom-loop"),
        pytest.param("torch", "torch", READ_TORCH, id="torch"),
        pytest.param("jax", "jax", READ_JAX, id="jax"),
    ],
)
def test_two_workers_of_a_template_train_together_and_continue_from_their_checkpoint(
    workspace: Workspace,
    make_project: Callable[[str, str], Project],
    tmp_path: Path,
    template: str,
    environment: str,
    read_model: str,
) -> None:
    project = make_project(template, environment)
    # The rendered script is run by hand once for each framework.
    outputs = train(workspace, project) if template == "custom-loop" else train_by_hand(project)
    first = outputs["worker.0"]
    assert list(losses(first)) == [1, 2, 3, 4]
    assert is_falling(losses(first))
    assert losses(outputs["worker.1"]) == losses(first)
    assert accuracies(outputs["worker.1"]) == accuracies(first)
    # Only worker 0 writes output.
    everything = (path.name for path in tmp_path.rglob("*") if path.name != "attempts")
    assert [name for name in everything if "temp" in name or "partial" in name] == []
    assert "saved" in first
    assert "saved" not in outputs["worker.1"]

    alone = project.run_alone(read_model)
    assert losses(first) == pytest.approx(losses(alone), rel=1e-3)
    assert accuracies(first) == pytest.approx(accuracies(alone), abs=0.01)
    assert float(alone.splitlines()[-1]) == pytest.approx(accuracies(first)[4], abs=1e-4)

    if template == "torch":
        script = project.folder / "train.py"
        script.write_text(script.read_text() + LIST_THREADS)
    outputs = train(workspace, project, "epochs=5")
    second = losses(outputs["worker.0"])
    assert list(second) == [5]
    assert losses(outputs["worker.1"]) == second
    assert second[5] < losses(first)[3]
    if template == "torch":  # a thread of gloo that frees a tensor while Python ends can abort the process
        assert ["gloo" in output.split("threads left: ")[1] for output in outputs.values()] == [False, False]


def test_killed_workers_continue_from_the_last_saved_epoch(
    workspace: Workspace, make_project: Callable[[str, str], Project]
) -> None:
    project = make_project("keras", "tensorflow")
    run = start(workspace, project, "epochs=10000")
    wait_until(lambda: run.state.phase.is_final or 3 in losses(said(run, "worker.0")), GANG_SECONDS)
    for replica in WORKERS:
        os.kill(run.pid(replica), signal.SIGKILL)
    run.wait_for(Phase.FAILED, GANG_SECONDS)
    done = max(losses(said(run, "worker.0")))

    outputs = train(workspace, project, f"epochs={done + 3}")
    second = losses(outputs["worker.0"])
    # The kill may have come between the saving of an epoch and the printing of its loss.
    assert min(second) in (done + 1, done + 2)
    assert max(second) == done + 3
    assert losses(outputs["worker.1"]) == second


def test_the_template_with_parameter_servers_trains_with_all_roles_and_as_one_process(
    workspace: Workspace, make_project: Callable[[str, str], Project]
) -> None:
    project = make_project("ps", "tensorflow")
    with project.gang() as gang:
        gang.start("ps.0", "worker.0", "worker.1", "evaluator.0", "chief.0")
        gang.finish("chief.0", "evaluator.0")
        # Workers and ps serve until they are stopped.
        assert all(gang.is_running(replica) for replica in ("ps.0", "worker.0", "worker.1"))
    assert list(losses(gang.output("chief.0"))) == [1, 2, 3, 4]
    assert is_falling(losses(gang.output("chief.0")))
    seen = accuracies(gang.output("evaluator.0"))
    assert seen[4] > 0.7

    alone = project.run_alone(READ_KERAS)
    assert float(alone.splitlines()[-1]) == pytest.approx(seen[4], abs=1e-4)
    assert list(losses(alone)) == [1, 2, 3, 4]
    assert is_falling(losses(alone))
    assert accuracies(alone)[4] > 0.7
    assert (project.folder / "output" / "model.keras").exists()

    assert list(losses(train(workspace, project, "epochs=5")["chief.0"])) == [5]


def test_replicas_without_a_framework_know_their_role_and_index(
    workspace: Workspace, make_project: Callable[[str, str], Project]
) -> None:
    project = make_project("plain", "jax")
    outputs = train_by_hand(project)
    for index in (0, 1):
        output = outputs[f"worker.{index}"]
        assert output.startswith(f"worker.{index} of run 0, attempt 0\n")
        assert list(losses(output)) == [1, 2, 3, 4]
        assert losses(output)[4] < losses(output)[1] / 2
        assert (project.output / f"worker-{index}.json").exists()
    assert losses(project.run_alone()) == losses(outputs["worker.0"])
    assert losses(outputs["worker.1"]) != losses(outputs["worker.0"])

    assert list(losses(train(workspace, project, "epochs=5")["worker.1"])) == [5]
