"""The imports of warm processes with real frameworks; their replicas print the same as cold ones."""

from __future__ import annotations

import pytest

from drumline.run.event import ReplicaStarted
from scaffold.environments import find_python
from scaffold.workspace import COLDLY, Workspace
from training.examples import said, train_to_the_end

pytestmark = pytest.mark.skipif(COLDLY, reason="it is about what is warm")

# It does not name `sys.modules`: a script that does so starts cold.
SCRIPT = """
import sys
import keras, tensorflow
print("begun")
files = {name: str(getattr(each, "__file__", "")) for name, each in vars(sys)["mod" "ules"].items()}
print(sorted({name.partition(".")[0] for name, file in files.items() if "site-packages" in file}))
print(type(keras.wrappers), keras.wrappers is tensorflow.keras.wrappers, type(keras.wrappers.__loader__))
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(tensorflow.ones((4, 3)), tensorflow.ones((4, 1)), verbose=0)
print(dir(keras.wrappers), keras.wrappers.SKLearnClassifier.__mro__)
"""


def test_a_warm_replica_of_tensorflow_prints_what_a_cold_one_prints(workspace: Workspace) -> None:
    cold, printed = run(workspace, SCRIPT, "--no-warm")
    warm, printed_warm = run(workspace, SCRIPT)
    assert (cold, warm) == ("", "warm")
    assert "'sklearn'" in printed
    assert printed_warm == printed


# triton's library prints a report at the end of a process in which the objects of an import are not collected.
COMPILES = """
import torch
compiled = torch.compile(lambda number: number * 2 + 1, backend="eager")
print(compiled(torch.ones(2)))
import triton
print(triton.language.float32)
"""
IMPORTS = """
import torch
print(torch.ones(2))
"""

TRAINS = """
import torch
print("imported" if "_dynamo" in vars(torch) else "not imported")
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.5)
print("imported" if "_dynamo" in vars(torch) else "not imported")
weight.sum().backward()
optimizer.step()
print(weight)
"""


def test_a_warm_process_has_imported_the_module_that_torch_needs_for_an_optimizer_if_the_spec_names_it(
    workspace: Workspace,
) -> None:
    workspace.cores = 1  # with this setting the first launch waits for its warm process
    _, printed = train(workspace, TRAINS, "torch", "", "--no-warm")
    assert printed.startswith("not imported\nimported\n")
    named = train(workspace, TRAINS, "torch", "warm: {import: [torch._dynamo]}")
    assert named == ("warm", printed.removeprefix("not "))


@pytest.mark.parametrize(("script", "more"), [(COMPILES, ""), (IMPORTS, "warm: {import: [triton]}")])
def test_a_warm_replica_of_torch_prints_what_a_cold_one_prints_to_its_end(
    workspace: Workspace, script: str, more: str
) -> None:
    workspace.cores = 1  # with this setting the first launch waits for its warm process
    cold, printed = train(workspace, script, "torch", more, "--no-warm")
    assert "tensor" in printed
    assert train(workspace, script, "torch", more) == ("warm", printed)
    assert cold == ""


def run(workspace: Workspace, script: str, *words: str) -> tuple[str, str]:
    """How a replica was started, and its output."""
    note, printed = train(workspace, script, "tensorflow", "", *words)
    return note, printed.partition("begun\n")[2]  # after TensorFlow's own lines, which have a time


def train(workspace: Workspace, script: str, framework: str, more: str, *words: str) -> tuple[str, str]:
    """Run a script to its end; return how its replica was started, and everything that it printed."""
    workspace.write("train.py", script)
    workspace.write(
        "drumline.yml",
        f"project: few\nframework: {framework}\nrun: {find_python(framework)} train.py\nroles: {{worker: 1}}\n{more}\n",
    )
    trained = train_to_the_end(workspace, *words)
    (note,) = {event.note for event in trained.events if isinstance(event, ReplicaStarted)}
    return note, said(trained, "worker.0")
