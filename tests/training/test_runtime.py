"""The runtime's helpers for TensorFlow and Keras, with real TensorFlow: supported uses, and refusals at the start."""

from __future__ import annotations

import json
import re
from pathlib import Path

from scaffold.environments import ROOT, find_python
from scaffold.rendered_gang import run
from scaffold.workspace import Workspace
from training.scripts import MODEL, refusals, train

WORKERS = ("worker.0", "worker.1")

# Prints the strategy that `strategy()` returns for several TF_CONFIGs, in one process.
ASK = """
import json, os, sys
sys.stderr = sys.stdout
from drumline.runtime.start_error import StartError
from drumline.runtime.tensorflow import strategy
for text in json.loads({texts!r}):
    os.environ["TF_CONFIG"] = text
    try:
        made = strategy()
    except StartError as refused:
        print("answer", refused.code)
    else:
        print("answer", type(made).__name__)
    if not text:
        import tensorflow as tf
        tf.constant(1) + 1
"""

SEVERAL_WORKERS = (
    """
import tensorflow as tf
from drumline.runtime.keras import backup
from drumline import runtime
if runtime.index() == 1:
    tf.__version__ = "2.20.1-dev0"
"""
    + MODEL
    + """
distribution = strategy()
from tensorflow.python.eager import context
print("heartbeats", context.context().coordination_service.heartbeat_timeout_in_ms)
refused(make_model(steps_per_execution=2).fit, make_data(64), verbose=0)
model = make_model()
for rows in 64, 9, 1:  # the last batches are uneven, and in the end there are less rows than workers
    model.fit(make_data(rows), verbose=0, epochs=2)
    found = model.evaluate(make_data(rows), verbose=0)
    predicted = model.predict(make_data(rows).map(lambda x, y: x), verbose=0)
    print("rows", rows, len(predicted), *(f"{number:.6f}" for number in found), flush=True)
for _ in range(2):
    losses = make_model(normal=True).fit(make_data(64), verbose=0, epochs=2).history["loss"]
print("normal", *(f"{loss:.6f}" for loss in losses))
with distribution.scope():
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    unbuilt.compile("sgd", "mse")
unbuilt.fit(make_data(64), verbose=0)
print("built", unbuilt.built)
apart = runtime.output_dir() / str(runtime.index())
make_model().fit(make_data(64), verbose=0, callbacks=[backup(apart)])
refused(make_model().fit, make_data(64), verbose=0, callbacks=[backup(apart)])
tell_about_sigterm()
"""
)

UNKNOWN_KERAS = (
    MODEL
    + """
from keras.src.backend.tensorflow import trainer
known = trainer.reduce_per_replica
def reduce_per_replica(values, strategy, reduction):
    return known(values, strategy, reduction)
trainer.reduce_per_replica = reduce_per_replica
distribution = strategy(preemption=True)
tell_about_sigterm()
refused(make_model().fit, make_data(64), verbose=0)
"""
)

PARAMETER_SERVERS = (
    """
import os
from drumline import runtime
from drumline.runtime.start_error import StartError
if runtime.role() == "worker":
    from drumline.runtime.tensorflow import strategy
    try:
        strategy()
    except StartError as error:
        print("refused", error.code, flush=True)
runtime.serve_if_server()
"""
    + MODEL
    + """
distribution = strategy()
if runtime.role() == "chief":
    coordinator = tf.distribute.coordinator.ClusterCoordinator(distribution)
    model = make_model()
    added = coordinator.schedule(tf.function(lambda: tf.constant(1) + tf.constant(2)))
    print(type(distribution).__name__, coordinator.fetch(added))
    refused(model.fit, make_data(64), verbose=0)
else:
    print(type(distribution).__name__)
"""
)

LEGACY = """
import os, signal
import numpy as np, tensorflow as tf, tf_keras as keras
from drumline import runtime
from drumline.runtime.keras import backup
from drumline.runtime.tensorflow import strategy
distribution = strategy()
with distribution.scope():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

def show(epoch, logs):
    print(f"epoch {epoch + 1}: loss {logs['loss']:.6f}", flush=True)
    if (runtime.attempt(), runtime.index(), epoch) == (0, 1, 1):
        os.kill(os.getpid(), signal.SIGKILL)

data = tf.data.Dataset.from_tensor_slices((np.ones((16, 4), "float32"), np.ones((16, 1), "float32"))).batch(8)
model.fit(data, epochs=3, verbose=0,
          callbacks=[backup(keras=keras), keras.callbacks.LambdaCallback(on_epoch_end=show)])
"""

ALONE = (
    """
import json, os, pathlib
from drumline.runtime.keras import backup
"""
    + MODEL
    + """
distribution = strategy()
folder = runtime.checkpoint_dir()

def fit(epochs, **options):
    model = make_model()
    history = model.fit(make_data(16), epochs=epochs, verbose=0, callbacks=[backup(**options)])
    return model, len(history.history.get("loss", ()))

first, count = fit(3)
print("trained", count, sorted(path.name for path in folder.iterdir()))
again, count = fit(3)
print("same", count, all(np.array_equal(a, b) for a, b in zip(first.get_weights(), again.get_weights())))
_, count = fit(4)
print("more", count)
newest = folder / "epoch-000004.weights.h5"
newest.write_bytes(newest.read_bytes()[:1000])
(folder / "partial.weights.h5").write_bytes(b"cut")
_, count = fit(4)
print("cut", count)
unbuilt = keras.Sequential([keras.layers.Dense(1)])
unbuilt.compile("sgd", "mse")
refused(unbuilt.fit, make_data(16), verbose=0, callbacks=[backup()])
for path in folder.glob("epoch-*"):
    path.write_bytes(b"cut")
_, count = fit(1)
print("anew", count, sorted(path.name for path in folder.glob("*.h5")))
_, count = fit(1, path=folder / "other", delete=True)
print("deleted", count, (folder / "other").exists())
import tf_keras

def fit_legacy():
    model = tf_keras.Sequential([tf_keras.layers.Input((4,)), tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(make_data(16), epochs=2, verbose=0, callbacks=[backup(folder / "legacy", keras=tf_keras)])

fit_legacy()
(whole,) = (folder / "legacy").rglob("*.data-*")
whole.write_bytes(whole.read_bytes()[:100])
refused(fit_legacy)
"""
)


def test_tf_config_that_no_strategy_can_use_is_refused_in_one_sentence(tmp_path: Path) -> None:
    workers = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    full_cluster = {"chief": ["127.0.0.1:3"], "ps": ["127.0.0.1:4"], **workers}

    def config(cluster: dict[str, list[str]], role: str, index: int = 0) -> str:
        return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})

    asked = {
        "": "_DefaultDistributionStrategy",  # after this one TensorFlow is initialized
        config(workers, "worker"): "call strategy() before anything else of TensorFlow: Collective ops must be",
        "{}": "_DefaultDistributionStrategy",
        config({"worker": ["127.0.0.1:1"]}, "worker"): "_DefaultDistributionStrategy",
        config(workers, "evaluator"): "_DefaultDistributionStrategy",
        "{": "TF_CONFIG is not JSON: Expecting property name",
        config(workers, "worker", 5): "TF_CONFIG says that this is worker 5",
        config({"worker": ["a..b:1", "127.0.0.1:2"]}, "worker"): "TF_CONFIG says that worker.0 is at a..b:1, and this",
        config({"master": ["127.0.0.1:3"], **workers}, "worker"): "TF_CONFIG calls its chief `master`, which",
        config({**workers, "ps": ["127.0.0.1:4"]}, "worker"): "TF_CONFIG has parameter servers and no chief:",
        config({"worker": ["127.0.0.1:1"], "evaluator": ["127.0.0.1:4"]}, "worker"): "_DefaultDistributionStrategy",
        config(full_cluster, "worker", 1): "worker.1 has to serve the chief: call drumline.runtime.serve_if_server()",
        config({**full_cluster, "worker": []}, "chief"): "TF_CONFIG needs a list of `host:port` for `worker`",
        config({"chief": ["127.0.0.1:3"], "ps": ["127.0.0.1:4"]}, "chief"): "TF_CONFIG has parameter servers and no wo",
    }
    code = ASK.format(texts=json.dumps(list(asked)))
    env = {"PYTHONPATH": str(ROOT / "src"), "DRUMLINE_ROLE": "worker", "DRUMLINE_INDEX": "1", "DRUMLINE_CHIEF": "x.0"}
    printed = run([str(find_python("tensorflow")), "-c", code], tmp_path, env)
    assert printed.count("warning: there is no TF_CONFIG, so worker.1 trains alone: `framework: tensorflow` sets") == 2
    answers = re.findall(r"^answer (.*)$", printed, re.M)
    wrong = [
        (text, had) for (text, wanted), had in zip(asked.items(), answers, strict=True) if not had.startswith(wanted)
    ]
    assert not wrong


def test_keras_3_fits_evaluates_and_predicts_on_several_workers(workspace: Workspace) -> None:
    first, second = train(workspace, SEVERAL_WORKERS).values()
    numbers = [line for line in first if line.startswith(("rows", "normal"))]
    assert numbers == [line for line in second if line.startswith(("rows", "normal"))]
    assert not [line for line in numbers if "nan" in line]
    assert [line.split()[1:3] for line in first if line.startswith("rows")] == [[n, n] for n in ("64", "9", "1")]
    for lines in (first, second):
        assert {"built True", "SIGTERM ends it", "heartbeats 30000"} <= set(lines)
        assert "warning: the workers have different versions of TensorFlow: 2.20.1, 2.21.0" in lines
        assert len([line for line in lines if line.startswith("warning: if the last batch has fewer rows than")]) == 1
        sentence, unshared = refusals(lines)
        assert unshared.startswith("not all workers see the same backup, but one after 1, 0 epochs: ")
        assert sentence.startswith("steps_per_execution=2 does not work in Keras 3 on several workers: leave it at 1")
        assert "TF_USE_LEGACY_KERAS=1" in sentence


def test_an_untested_version_of_keras_is_refused_with_the_alternatives(workspace: Workspace) -> None:
    for lines in train(workspace, UNKNOWN_KERAS).values():
        assert "SIGTERM is caught" in lines  # by TensorFlow, which the script has asked to do so
        (sentence,) = refusals(lines)
        assert sentence.startswith("model.fit of Keras 3.15.1 on several workers was never tested with drumline")
        assert "install keras==3.15.1, or use tf-keras" in sentence


def test_the_chief_coordinates_workers_and_ps_and_fit_of_keras_3_is_refused_with_parameter_servers(
    workspace: Workspace,
) -> None:
    listed = "tensorflow: {evaluator_in_cluster: true}"  # no replica waits for the evaluator in spite of that
    printed = train(workspace, PARAMETER_SERVERS, f"roles: {{chief: 1, worker: 1, ps: 1, evaluator: 1}}\n{listed}")
    assert "ParameterServerStrategyV2 3" in printed["chief.0"]
    (sentence,) = refusals(printed["chief.0"])
    assert sentence.startswith("model.fit of Keras 3 does not work with parameter servers: write the loop yourself")
    assert "pip install --no-deps tf-keras" in sentence
    (sentence,) = refusals(printed["worker.0"])
    assert sentence.startswith("worker.0 has to serve the chief")
    assert "_DefaultDistributionStrategy" in printed["evaluator.0"]


def test_a_training_with_tf_keras_continues_from_its_backup_after_a_worker_was_killed(workspace: Workspace) -> None:
    printed = train(workspace, LEGACY, "roles: {worker: 2}\nrestart: 1\nenv: {TF_USE_LEGACY_KERAS: '1'}")
    first, second = ([line for line in lines if line.startswith("epoch")] for lines in printed.values())
    assert first == second
    assert re.match(r"epoch [23]: ", first[0])
    assert first[-1].startswith("epoch 3: ")


def test_a_training_continues_from_its_last_complete_backup_if_a_later_one_is_incomplete(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(ROOT / "src"), "OUTPUT_DIR": str(tmp_path)}
    lines = run([str(find_python("tensorflow")), "-c", ALONE], tmp_path, env).splitlines()
    assert [line for line in lines if not line.startswith("resumed")] == [
        "trained 3 ['epoch-000002.weights.h5', 'epoch-000003.weights.h5']",
        "same 0 True",
        "more 1",
        "cut 1",
        "refused a model must be built before fit() to continue from a backup: begin it with an Input",
        "anew 1 ['damaged-epoch-000003.weights.h5', 'damaged-epoch-000004.weights.h5', 'epoch-000001.weights.h5']",
        "deleted 1 False",
        lines[-1],
    ]
    assert lines[-1].startswith(f"refused the backup in {tmp_path}/checkpoint/legacy")
    assert lines[-1].endswith("; remove it to start from the beginning")
    assert [line for line in lines if line.startswith("resumed")] == [
        "resumed after epoch 3",
        "resumed after epoch 3",
        "resumed after epoch 3",
    ]
