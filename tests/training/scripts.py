"""Run a script on all replicas of a gang, and return what each of them printed."""

from __future__ import annotations

import pytest

from drumline.run.state import Phase
from scaffold.environments import find_python
from scaffold.rendered_gang import GANG_SECONDS
from scaffold.workspace import Run, Workspace

MODEL = """
import numpy as np, keras, tensorflow as tf
from drumline import runtime
from drumline.runtime.start_error import StartError
from drumline.runtime.tensorflow import strategy

def make_model(*, normal=False, **options):
    keras.utils.set_random_seed(1)
    with distribution.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((4,)),
                keras.layers.Dense(8),
                *([keras.layers.BatchNormalization()] if normal else [keras.layers.Dropout(0.1)]),
                keras.layers.Dense(1),
            ]
        )
        model.compile("sgd", "mse", metrics=["mae"], **options)
    return model

def make_data(rows):
    x = np.arange(rows * 4, dtype="float32").reshape(rows, 4) / (rows * 4)
    return tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True))).batch(8)

def tell_about_sigterm():
    caught = int(open("/proc/self/status").read().split("SigCgt:")[1].split()[0], 16)
    print("SIGTERM", "is caught" if caught >> 14 & 1 else "ends it", flush=True)

def refused(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except StartError as error:
        print("refused", error.code, flush=True)
"""

# The threads of a process, once those of one kind have ended: a joined thread is listed a moment longer, until the
# kernel has removed it.
NAME_THREADS = """
def names_of_threads(gone=None):
    import pathlib, time
    deadline = time.monotonic() + 20
    while True:
        names = []
        for task in pathlib.Path("/proc/self/task").iterdir():
            try:
                names.append((task / "comm").read_text().strip())
            except OSError:
                pass
        if gone is None or not any(gone in name for name in names) or time.monotonic() > deadline:
            return names
        time.sleep(0.01)
"""


def train(workspace: Workspace, script: str, spec: str = "roles: {worker: 2}") -> dict[str, list[str]]:
    """Run a script on all replicas to its end; return what each printed in its last attempt, line by line."""
    workspace.write("script.py", script)
    command = f"run: {find_python('tensorflow')} script.py"
    started = workspace.train(f"framework: tensorflow\ntensorboard: false\n{command}\n{spec}")
    replicas = [str(replica.id) for replica in started.folder.plan().replicas]
    try:
        started.wait_for(Phase.FINISHED, GANG_SECONDS)
    except AssertionError as error:
        pytest.fail("\n--- ".join((str(error), *(said(started, each) for each in replicas))))
    return {replica: said(started, replica).splitlines() for replica in replicas}


def said(run: Run, replica: str) -> str:
    return run.log(replica, run.state.attempt).decode(errors="replace")


def refusals(lines: list[str]) -> list[str]:
    return [line.removeprefix("refused ") for line in lines if line.startswith("refused ")]
