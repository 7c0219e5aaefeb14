"""Several faults of two real workers in one run: they start late, are disconnected, and continue."""

from __future__ import annotations

import json

from drumline.run.event import Exit
from scaffold.workspace import Workspace
from training.scripts import MODEL, refusals, train

BAD_DAY = (
    """
import os, pathlib, signal, time
from drumline import runtime
runtime.record_errors()
"""
    + MODEL
    + """
from drumline.runtime.keras import backup
beside = pathlib.Path(os.environ["DRUMLINE_TRACE"]).parent / "worker.0" / "log"
if (runtime.attempt(), runtime.index()) == (0, 1):
    while "waiting for worker.1 at " not in beside.read_text(errors="replace"):
        time.sleep(0.05)
distribution = strategy()
print("all are there", flush=True)
folder = runtime.checkpoint_dir()

class Fall(keras.callbacks.Callback):
    epoch = 0
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        if (runtime.attempt(), runtime.index(), self.epoch, batch) == (0, 1, 2, 1):
            newest = folder / "epoch-000002.weights.h5"
            newest.write_bytes(newest.read_bytes()[:1000])
            os.kill(os.getpid(), signal.SIGTERM)

if runtime.attempt() == 0:
    elsewhere = runtime.output_dir() / "elsewhere" if runtime.is_chief() else "/proc/self/fdinfo"
    make_model().fit(make_data(64), verbose=0, callbacks=[backup(elsewhere)])
    print("written", sorted(path.name for path in pathlib.Path(elsewhere).glob("epoch*")), flush=True)

history = make_model().fit(make_data(64), epochs=4, verbose=0, callbacks=[backup(), Fall()])
print("epochs", len(history.history["loss"]), flush=True)
if runtime.is_chief():
    kind = tf.compat.v1.SummaryMetadata(plugin_data=dict(plugin_name="scalars"))
    with tf.summary.create_file_writer(str(runtime.output_dir() / "logs" / "train")).as_default():
        tf.summary.write("epoch_loss", tf.constant(0.25), step=3, metadata=kind)
        tf.summary.flush()
    with tf.io.TFRecordWriter(str(folder / "rows")) as rows:
        rows.write(b"row")
few = tf.data.TFRecordDataset([str(folder / "rows")]).map(lambda row: (tf.ones(4), tf.ones(1))).batch(8)
try:
    refused(make_model().fit, few, verbose=0)
except tf.errors.OpError as error:
    print("left alone", type(error).__name__, flush=True)
os._exit(0)
"""
)


def test_training_continues_with_a_late_worker_a_cut_connection_and_an_incomplete_backup(workspace: Workspace) -> None:
    printed = train(workspace, BAD_DAY, "roles: {worker: 2}\nrestart: 1")
    (run,) = workspace.runs()
    before = {replica: run.log(replica, 0).decode(errors="replace").splitlines() for replica in printed}
    # The first one names the peer that it waits for, and continues when that is there.
    chief, other = before["worker.0"], before["worker.1"]
    (waited,) = [line for line in chief if line.startswith("waiting for ")]
    assert waited.startswith("waiting for worker.1 at 127.0.0.1:")
    assert chief.index(waited) < chief.index("all are there")
    # A worker that cannot write to the chief's folder takes part in saving all the same.
    assert "written ['epoch-000001.weights.h5']" in chief
    assert "written []" in other
    # SIGTERM during an epoch ended a worker at once; all continue from the backup before the incomplete one.
    (cause,) = run.state.causes
    assert (str(cause.replica), cause.exit) == ("worker.1", Exit(signal=15))
    for lines in printed.values():
        assert [line for line in lines if "epoch-000002.weights.h5 cannot be read: " in line]
        assert {"resumed after epoch 1", "epochs 3"} <= set(lines)
    # Fewer files than workers are reported in one sentence.
    assert any(
        sentence.startswith("the data has fewer files than there are workers")
        for lines in printed.values()
        for sentence in refusals(lines)
    )
    # Only the chief's TensorBoard summaries have the progress of the training.
    replicas = json.loads(workspace.run("status", run.id, "-o", "json").out)["replicas"]
    assert [(each["progress"]["epoch"], each["progress"]["loss"]) for each in replicas] == [(4, 0.25), (None, None)]
