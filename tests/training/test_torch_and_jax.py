"""The examples for PyTorch and JAX, trained by `drumline train`; their losses and accuracies are checked."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from drumline.runtime.progress import read_report
from scaffold.rendered_gang import accuracies, losses
from scaffold.workspace import Run, Workspace
from training.examples import said, train, train_alone
from training.scripts import NAME_THREADS

WORKERS = ("worker.0", "worker.1")
COUNT = 1536  # rows of the training data

# Train as the example does; print the rows of each epoch, and at the end the threads that still run.
WATCHED = """
import hashlib
import {script} as example
from drumline import runtime

rows, report = [], runtime.report

def tell(step, **values):
    print("rows", step, *(hashlib.sha256(row.tobytes()).hexdigest()[:16] for row in rows), flush=True)
    rows.clear()
    report(step=step, **values)

runtime.report = tell
{watch}
example.main()
{threads}
print("threads", *names_of_threads({gone!r}))
"""

# Train in one process; continue from the gang's checkpoint; load its model; read the real MNIST file if it exists.
ALONE = """
import os, sys
import numpy as np
import {script} as example
sys.argv = ["{script}.py", "--epochs", "3"]
example.main()
images, labels = example.load_digits()[2:]
{load}
print("loaded", np.mean(np.asarray(found == labels)))
os.environ["CHECKPOINT_DIR"] = "{output}/checkpoint"
print("---")
example.main()
white = np.full((8, 28, 28), 255, "uint8")
np.savez("mnist.npz", x_train=white[:6], y_train=np.arange(6), x_test=white[6:], y_test=np.arange(2))
mnist = example.load_digits()
print("mnist", *map(len, mnist), float(mnist[0].mean()))
"""


class Example(NamedTuple):
    """The differences between the examples."""

    folder: str
    environment: str
    script: str
    model: str
    watch: str  # records the rows of the training
    load: str  # the digits that the saved model predicts


TORCH = Example(
    folder="torch_ddp",
    environment="torch",
    script="torch_ddp",
    model="model.pt",
    watch="""
import torch

def note(module, inputs):
    if isinstance(module, example.DistributedDataParallel):
        rows.extend(inputs[0].numpy())

torch.nn.modules.module.register_module_forward_pre_hook(note)
""",
    load="""
import torch
model = example.make_model(8)
model.load_state_dict(torch.load("{output}/model.pt"))
found = model(images).argmax(1)
""",
)

JAX = Example(
    folder="jax",
    environment="jax",
    script="jax_digits",
    model="model.npz",
    watch="""
import numpy as np
step = example.step

def note(weights, images, labels, lr):
    rows.extend(row for shard in images.addressable_shards for row in np.asarray(shard.data))
    return step(weights, images, labels, lr)

example.step = note
""",
    load="""
found = example.predict(dict(np.load("{output}/model.npz")), images)
""",
)


@pytest.mark.parametrize("example", [TORCH, JAX], ids=lambda example: example.folder)
def test_two_workers_share_the_rows_and_have_the_results_of_one_process(workspace: Workspace, example: Example) -> None:
    gone = "gloo" if example is TORCH else None
    script = WATCHED.format(script=example.script, watch=example.watch, threads=NAME_THREADS, gone=gone)
    trained = train(workspace, example.folder, example.environment, "-p", "epochs=2", script=script)
    first, second = (said(trained, replica) for replica in WORKERS)
    assert list(losses(first)) == [1, 2]
    assert losses(second) == losses(first)
    assert accuracies(second) == accuracies(first)
    check_rows(first, second)
    check_output(trained, example)

    # One process with whole batches, without drumline except its runtime.
    output = trained.path / "output"
    code = ALONE.format(script=example.script, load=example.load.format(output=output), output=output)
    alone, resumed = train_alone(workspace, example.environment, code).split("---\n")
    expected = losses(alone)
    assert list(expected) == [1, 2, 3]
    assert expected[3] < expected[2] < expected[1]
    assert losses(first) == pytest.approx({1: expected[1], 2: expected[2]}, rel=1e-4)
    assert accuracies(first)[2] == pytest.approx(accuracies(alone)[2], abs=0.005)
    (loaded,) = re.findall(r"^loaded (.*)$", alone, re.MULTILINE)
    assert float(loaded) == pytest.approx(accuracies(first)[2], abs=1e-4)
    # The files of the gang are sufficient to continue.
    assert resumed.startswith("resumed after epoch 2\n")
    assert losses(resumed) == pytest.approx({3: expected[3]}, rel=1e-3)
    assert "mnist 6 6 2 2 1.0" in resumed


def check_rows(first: str, second: str) -> None:
    """Check that each row is used once per epoch, by one worker, and in another order in the next epoch."""
    mine, yours = (
        [rows.split() for rows in re.findall(r"^rows \d (.*)$", text, re.MULTILINE)] for text in (first, second)
    )
    assert len(mine) == len(yours) == 2
    for one, other in zip(mine, yours, strict=True):
        assert len(one) == len(other) == COUNT / 2
        assert len({*one, *other}) == COUNT
    assert mine[0] != mine[1]


def check_output(trained: Run, example: Example) -> None:
    """Check that only the chief wrote files, no file is incomplete, and no thread is left."""
    output = trained.path / "output"
    assert {path.name for path in output.iterdir()} == {"checkpoint", example.model}
    assert [path.stem for path in (output / "checkpoint").iterdir()] == ["last"]
    first, second = (said(trained, replica) for replica in WORKERS)
    assert f"saved {output / example.model}" in first
    assert "saved" not in second
    for replica, text in zip(WORKERS, (first, second), strict=True):
        (threads,) = re.findall(r"^threads (.*)$", text, re.MULTILINE)
        # A thread that frees a tensor of PyTorch during the exit of Python may abort the process.
        assert example is JAX or "gloo" not in threads
        report = read_report(trained.trace_dir(replica) / "report")
        assert report is not None
        assert report.step == 2
        assert report.values == pytest.approx({"loss": losses(first)[2], "accuracy": accuracies(first)[2]}, abs=1e-4)
