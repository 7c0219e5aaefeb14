"""Every template of `drumline init`, trained for real by every replica; the numbers are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.line import Line, Project, accuracies, losses
from training.scripts import NAME_THREADS

# Each prints how many of the test data the saved model tells right.
READ_KERAS = """
import os, keras, numpy as np
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

MIRRORED = [
    pytest.param("keras", "tensorflow", READ_KERAS, id="keras"),
    pytest.param("custom-loop", "tensorflow", READ_KERAS, id="custom-loop"),
    pytest.param("torch", "torch", READ_TORCH, id="torch"),
    pytest.param("jax", "jax", READ_JAX, id="jax"),
]


def train(project: Project, name: str, *parameters: str) -> Line:
    """Train with two workers until both have finished."""
    with project.line(name, *parameters) as line:
        line.start("worker.0", "worker.1")
        line.finish("worker.0", "worker.1")
    return line


def is_falling(values: dict[int, float]) -> bool:
    ordered = [values[epoch] for epoch in sorted(values)]
    return ordered == sorted(ordered, reverse=True) and ordered[-1] < ordered[0] / 2


@pytest.mark.parametrize(("template", "environment", "read_model"), MIRRORED)
def test_two_workers_train_as_one_and_go_on_where_they_ended(
    tmp_path: Path, template: str, environment: str, read_model: str
) -> None:
    project = Project(tmp_path, template, environment)
    alone = project.run_alone()

    line = train(project, "first")
    first = line.output("worker.0")
    assert list(losses(first)) == [1, 2, 3, 4]
    assert is_falling(losses(first))
    assert losses(line.output("worker.1")) == losses(first)
    assert accuracies(line.output("worker.1")) == accuracies(first)
    assert losses(first) == pytest.approx(losses(alone), rel=1e-3)
    assert accuracies(first) == pytest.approx(accuracies(alone), abs=0.01)
    assert float(project.evaluate(read_model)) == pytest.approx(accuracies(first)[4], abs=1e-4)
    # Only worker 0 leaves something behind.
    assert [path for path in tmp_path.rglob("*") if "temp" in path.name or "partial" in path.name] == []
    assert "saved" in first
    assert "saved" not in line.output("worker.1")

    line = train(project, "second", "epochs=5")
    second = losses(line.output("worker.0"))
    assert list(second) == [5]
    assert losses(line.output("worker.1")) == second
    assert second[5] < losses(first)[3]


def test_nothing_of_torch_runs_when_its_script_has_ended(tmp_path: Path) -> None:
    """A thread of gloo that lets go of a tensor while Python ends aborts the process, now and then."""
    project = Project(tmp_path, "torch", "torch")
    script = project.folder / "train.py"
    script.write_text(script.read_text() + LIST_THREADS)
    line = train(project, "first", "epochs=1")
    for replica in ("worker.0", "worker.1"):
        assert "gloo" not in line.output(replica).split("threads left: ")[1]


def test_killed_workers_go_on_from_the_last_epoch_that_was_saved(tmp_path: Path) -> None:
    project = Project(tmp_path, "keras", "tensorflow")
    with project.line("first", "epochs=10000") as line:
        line.start("worker.0", "worker.1")
        line.await_text("worker.0", "epoch 3:")
        line.kill()
    done = max(losses(line.output("worker.0")))

    line = train(project, "second", f"epochs={done + 3}")
    second = losses(line.output("worker.0"))
    # The kill may have come between the saving of an epoch and the printing of its loss.
    assert min(second) in (done + 1, done + 2)
    assert max(second) == done + 3
    assert losses(line.output("worker.1")) == second


def test_a_chief_trains_with_workers_and_parameter_servers_while_an_evaluator_looks_on(tmp_path: Path) -> None:
    project = Project(tmp_path, "ps", "tensorflow")
    with project.line("first") as line:
        line.start("ps.0", "worker.0", "worker.1", "evaluator.0", "chief.0")
        line.finish("chief.0", "evaluator.0")
        # They serve until somebody stops them.
        assert all(line.is_running(replica) for replica in ("ps.0", "worker.0", "worker.1"))
    assert list(losses(line.output("chief.0"))) == [1, 2, 3, 4]
    assert is_falling(losses(line.output("chief.0")))
    seen = accuracies(line.output("evaluator.0"))
    assert float(project.evaluate(READ_KERAS)) == pytest.approx(seen[4], abs=1e-4)
    assert seen[4] > 0.7

    with project.line("second", "epochs=5") as line:
        line.start("ps.0", "worker.0", "worker.1", "chief.0")
        line.finish("chief.0")
    assert list(losses(line.output("chief.0"))) == [5]


def test_the_script_for_parameter_servers_also_trains_alone(tmp_path: Path) -> None:
    project = Project(tmp_path, "ps", "tensorflow")
    output = project.run_alone()
    assert list(losses(output)) == [1, 2, 3, 4]
    assert is_falling(losses(output))
    assert accuracies(output)[4] > 0.7
    assert (project.folder / "output" / "model.keras").exists()


def test_replicas_without_a_framework_know_who_they_are(tmp_path: Path) -> None:
    project = Project(tmp_path, "plain", "jax")
    line = train(project, "first")
    for index in (0, 1):
        output = line.output(f"worker.{index}")
        assert output.startswith(f"worker.{index} of run 0, attempt 0\n")
        assert list(losses(output)) == [1, 2, 3, 4]
        assert losses(output)[4] < losses(output)[1] / 2
        assert (project.output / f"worker-{index}.json").exists()
    assert losses(project.run_alone()) == losses(line.output("worker.0"))
    assert losses(line.output("worker.1")) != losses(line.output("worker.0"))

    line = train(project, "second", "epochs=5")
    assert list(losses(line.output("worker.1"))) == [5]
