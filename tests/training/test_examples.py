"""The examples, trained by `drumline train`; their losses and accuracies are checked."""

from __future__ import annotations

import re
import shutil

import pytest

from drumline.run.state import Phase
from drumline.runtime.progress import read_report
from scaffold.environments import ROOT, find_python
from scaffold.rendered_gang import GANG_SECONDS, accuracies, losses, run
from scaffold.summaries import read_scalars
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

EXAMPLES = ("keras_mnist", "custom_training_mnist")
WORKERS = ("worker.0", "worker.1")

# Trains in one process, and then loads the model that the gang has saved, in both formats.
ALONE_AND_THEN = """
import sys
import numpy as np, tensorflow as tf
import {example} as example
sys.argv = ["{example}.py", "--epochs", "3"]
example.main()
images, labels = example.load_digits()[2:]
model = tf.keras.models.load_model("{output}/model.keras")
served = tf.saved_model.load("{output}/saved_model")
for name, found in ("model", model.predict(images, verbose=0)), ("served", served.serve(images)):
    print(name, np.mean(np.argmax(found, axis=1) == labels))
"""

# An example in which one worker is killed, in the first attempt only, after it reported an epoch and before it saved.
KILLED = """
import os, runpy, signal
import tensorflow  # a script that imports it starts warm
from drumline import runtime
report = runtime.report

def report_and_fall(step, **values):
    report(step=step, **values)
    if (runtime.attempt(), runtime.index(), step) == (0, {victim}, 2):
        os.kill(os.getpid(), signal.SIGKILL)

runtime.report = report_and_fall
runpy.run_path("{example}.py", run_name="__main__")
"""

# An example that waits in its last epoch, so that the summaries of the epochs before can be read.
WATCHED = """
import os, runpy, time
import tensorflow  # a script that imports it starts warm
from drumline import runtime
report = runtime.report

def report_and_wait(step, **values):
    report(step=step, **values)
    while step == 3 and not os.path.exists("go"):
        time.sleep(0.01)

runtime.report = report_and_wait
runpy.run_path("custom_training_mnist.py", run_name="__main__")
"""

# Which rows this worker gets in each of two epochs.
ROWS = """
import hashlib
from drumline.runtime.tensorflow import strategy
distribution = strategy()
import custom_training_mnist, keras_mnist
images, labels = keras_mnist.load_digits()[:2]
for batches in (
    keras_mnist.make_batches(images, labels, shuffle=True),
    custom_training_mnist.make_batches(images, labels, train=True),
):
    data = distribution.experimental_distribute_dataset(batches)
    for epoch in 0, 1:
        seen = [row for rows, _ in data for row in distribution.experimental_local_results(rows)[0].numpy()]
        print("rows", *(hashlib.sha256(row.tobytes()).hexdigest()[:16] for row in seen))
"""


def train(workspace: Workspace, example: str, *words: str, script: str = "") -> Run:
    """Train an example to its end; `script` replaces the example's script, which it can import."""
    started = start(workspace, example, *words, script=script)
    finish(started)
    return started


def start(workspace: Workspace, example: str, *words: str, script: str = "", shown: bool = False) -> Run:
    """Start a training; without TensorBoard unless it is tested, since it takes CPU time from the replicas."""
    for name in EXAMPLES:
        shutil.copytree(ROOT / "examples" / name, workspace.project, dirs_exist_ok=True)
    spec = (ROOT / "examples" / example / "drumline.yml").read_text()
    if script:
        workspace.write("instead.py", script)
        spec = spec.replace(f"{example}.py", "instead.py")
    spec = spec.replace("run: python", f"run: {find_python('tensorflow')}")
    workspace.write("here.yml", spec if shown else f"{spec}\ntensorboard: false\n")
    answer = workspace.run("train", "-d", "here.yml", *words)
    assert answer.code == 0, answer.err
    return Run(workspace, answer.out.strip())


def finish(started: Run) -> None:
    try:
        started.wait_for(Phase.FINISHED, GANG_SECONDS)
    except AssertionError as error:
        attempt = started.state.attempt
        pytest.fail("\n--- ".join((str(error), *(said(started, each, attempt)[-3000:] for each in WORKERS))))


def said(run: Run, replica: str, attempt: int = 0) -> str:
    return run.log(replica, attempt).decode(errors="replace")


@pytest.mark.parametrize(("example", "victim"), [("keras_mnist", 1), ("custom_training_mnist", 0)])
def test_two_workers_have_the_results_of_one_process_also_when_a_worker_is_killed(
    workspace: Workspace, example: str, victim: int
) -> None:
    trained = train(workspace, example, "-p", "epochs=3")
    first, second = (said(trained, replica) for replica in WORKERS)
    assert list(losses(first)) == [1, 2, 3]
    assert losses(second) == losses(first)
    assert accuracies(second) == accuracies(first)

    # Only the chief saves files.
    output = trained.path / "output"
    assert {path.name for path in output.iterdir()} == {"checkpoint", "model.keras", "saved_model", "summaries"}
    assert {path.name.split(".")[-3] for path in output.rglob("events.out.*")} == {str(trained.pid("worker.0"))}
    assert f"saved {output / 'model.keras'}" in first
    assert "saved" not in second
    for replica in WORKERS:
        report = read_report(trained.trace_dir(replica) / "report")
        assert report is not None
        assert report.step == 3
        assert report.values == pytest.approx({"loss": losses(first)[3], "accuracy": accuracies(first)[3]}, abs=1e-4)

    # One process with whole batches, without drumline except its runtime.
    code = ALONE_AND_THEN.format(example=example, output=output)
    env = {name: workspace.env[name] for name in ("PATH", "PYTHONPATH", "TMPDIR")}
    alone = run([str(find_python("tensorflow")), "-c", code], workspace.project, env)
    assert losses(alone) == pytest.approx(losses(first), rel=1e-4)
    assert accuracies(alone) == pytest.approx(accuracies(first), abs=0.005)
    for form in ("model", "served"):
        (accuracy,) = re.findall(rf"^{form} (.*)$", alone, re.MULTILINE)
        assert float(accuracy) == pytest.approx(accuracies(first)[3], abs=1e-4)
    check_killed(workspace, example, victim, whole=losses(first))


def check_killed(workspace: Workspace, example: str, victim: int, whole: dict[int, float]) -> None:
    """Check that all continue from the saved epoch after a worker was killed, with the losses of a run without it."""
    trained = train(workspace, example, "-p", "epochs=3", script=KILLED.format(example=example, victim=victim))
    assert trained.state.attempt == 1
    # The chief may have saved the second epoch, which the other worker has not finished.
    (done,) = {re.findall(r"^resumed after epoch (\d)$", said(trained, each, 1), re.MULTILINE)[0] for each in WORKERS}
    assert int(done) in ((1, 2) if victim == 1 else (1,))
    before, after = losses(said(trained, WORKERS[victim])), losses(said(trained, "worker.0", 1))
    assert list(before) == [1, 2]
    assert list(after) == list(range(int(done) + 1, 4))
    assert losses(said(trained, "worker.1", 1)) == after
    # It continued with exactly the saved state: a repeated epoch has the same loss again, and the losses of all epochs
    # are those of a run without a failure.
    assert after[int(done) + 1] < before[int(done)]
    again = {epoch: loss for epoch, loss in after.items() if epoch in before}
    assert again == pytest.approx({epoch: before[epoch] for epoch in again}, rel=1e-4)
    assert before | after == pytest.approx(whole, rel=1e-4)


def test_each_row_is_processed_by_one_worker_once_per_epoch(workspace: Workspace) -> None:
    seen = train(workspace, "keras_mnist", script=ROWS)
    first, second = (
        [line.split()[1:] for line in said(seen, replica).splitlines() if line.startswith("rows ")]
        for replica in WORKERS
    )
    assert len(first) == len(second) == 4
    for mine, yours in zip(first, second, strict=True):
        assert len(mine) == len(yours) == 1536 / 2
        assert len({*mine, *yours}) == 1536
    assert first[0] == first[1] != sorted(first[0]), "shuffled, and all epochs alike: a run that goes on sees the same"


def scalars(address: str, count: int) -> dict[str, list[tuple[int, float]]]:
    """Return the losses that TensorBoard shows once it has read so many; it reads files with delays."""
    return {run: found for run, found in read_scalars(address, "loss").items() if len(found) == count}


def test_tensorboard_shows_the_summaries_of_the_chief_during_and_after_the_training(workspace: Workspace) -> None:
    workspace.env["DRUMLINE_TENSORBOARD"] = str(find_python("tensorboard"))
    run = start(workspace, "custom_training_mnist", "-p", "epochs=3", script=WATCHED, shown=True)
    wait_until(lambda: 3 in losses(said(run, "worker.0")), GANG_SECONDS)
    address = wait_until(lambda: run.state.tensorboard_address, GANG_SECONDS)
    shown = wait_until(lambda: scalars(address, 2), GANG_SECONDS)
    printed = losses(said(run, "worker.0"))
    assert list(shown) == ["summaries"]
    assert dict(shown["summaries"]) == pytest.approx({step: printed[step] for step in (1, 2)}, abs=1e-5)
    assert list(read_scalars(address, "accuracy")) == ["summaries"]
    workspace.write("go", "")
    finish(run)
    assert run.state.warnings == ()
    wait_until(lambda: not workspace.processes())

    with workspace.command("tensorboard", run.id) as command:
        assert command.stdout
        address = command.stdout.readline().split()[-1]
        shown = wait_until(lambda: scalars(address, 3), GANG_SECONDS)
        command.terminate()
    assert dict(shown[f"{run.id}/summaries"]) == pytest.approx(printed, abs=1e-5)
    assert command.returncode == 0
