"""The unchanged example of the RiseML guide, trained by a real TensorFlow with workers and parameter servers."""

from __future__ import annotations

import re

from scaffold.dialects import GUIDE
from scaffold.environments import find_python
from scaffold.rendered_gang import GANG_SECONDS
from scaffold.workspace import Workspace

# Like programs of its time: every worker has its own graph, and the variables are on the parameter servers. The
# master, which writes the checkpoint, is the first worker.
SCRIPT = """
import argparse, json, os, time
from pathlib import Path
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
parser = argparse.ArgumentParser()
parser.add_argument("--num-layers", type=int)
parser.add_argument("--learning-rate", type=float)
parser.add_argument("--training-data")
flags = parser.parse_args()
config = json.loads(os.environ["TF_CONFIG"])
cluster, job, index = tf.train.ClusterSpec(config["cluster"]), config["task"]["type"], config["task"]["index"]
server = tf.train.Server(cluster, job_name=job, task_index=index)
if job == "ps":
    server.join()
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{index}")):
    step = tf.train.get_or_create_global_step()
    rows = hidden = tf.random.stateless_normal([64, 4], seed=[1, index])
    for layer in range(flags.num_layers):
        hidden = tf.matmul(hidden, tf.get_variable(f"layer-{layer}", [4, 4], initializer=tf.initializers.identity()))
    guess = tf.matmul(hidden, tf.get_variable("out", [4, 1], initializer=tf.zeros_initializer()))
    loss = tf.reduce_mean((guess - tf.reduce_sum(rows, axis=1, keepdims=True)) ** 2)
    train = tf.train.GradientDescentOptimizer(flags.learning_rate).minimize(loss, global_step=step)
hooks = [tf.train.StopAtStepHook(last_step=120)]
checkpoint, output = Path(os.environ["CHECKPOINT_DIR"]), Path(os.environ["OUTPUT_DIR"])
while index and not (checkpoint / "checkpoint").exists():  # the session itself would look again every 30 s
    time.sleep(0.05)
where, filters = str(checkpoint) if index == 0 else None, ["/job:ps", f"/job:worker/task:{index}"]
options = tf.ConfigProto(device_filters=filters)
with tf.train.MonitoredTrainingSession(server.target, index == 0, where, hooks=hooks, config=options) as session:
    (output / f"ready-{index}").touch()
    while len(list(output.glob("ready-*"))) < cluster.num_tasks("worker"):
        time.sleep(0.05)
    losses = [session.run([loss, train])[0]]
    while not session.should_stop():
        losses.append(session.run([loss, train])[0])
print(f"loss {losses[0]:.4f} {losses[-1]:.4f} {flags.training_data}", flush=True)
"""


def test_the_guides_example_trains_on_parameter_servers_and_the_first_worker_saves(workspace: Workspace) -> None:
    workspace.write("riseml.yml", GUIDE)
    workspace.write("train_model.py", SCRIPT)
    program = (str(find_python("tensorflow")), "-m", "drumline")
    words = ("--oversubscribe", "-p", "num-layers=2", "-p", "learning-rate=0.02")
    with workspace.command("train", *words, program=program) as command:
        out, err = command.communicate(timeout=GANG_SECONDS)
    assert command.returncode == 0, out[-6000:] + err
    found = re.findall(r"worker\.(\d) .* loss (\d\.\d+) (\d\.\d+) /data/my-project$", out, re.MULTILINE)
    assert sorted(index for index, _, _ in found) == ["0", "1", "2"]
    assert min(float(last) for _, _, last in found) < max(float(first) for _, first, _ in found) / 2
    (run,) = workspace.runs()
    assert (run.folder.path / "output" / "checkpoint" / "checkpoint").exists()
    assert {str(name): replica.phase.name for name, replica in run.state.replicas.items()} == dict.fromkeys(
        ("worker.0", "worker.1", "worker.2", "ps.0", "ps.1"), "FINISHED"
    )
