"""Classify ten noisy patterns, with a custom training loop on several workers.

Needs TensorFlow. `python train.py` runs in a single process; `drumline train` starts one process per
worker and sets TF_CONFIG for each.
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

OUTPUT_DIR = Path(os.environ.get("OUTPUT_DIR", "output"))
CHECKPOINT_DIR = Path(os.environ.get("CHECKPOINT_DIR", OUTPUT_DIR / "checkpoint"))
BATCH = 64  # of all workers together


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    # Connects to the other workers, so it comes before anything else of TensorFlow.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf.keras.utils.set_random_seed(1)

    train_data = strategy.experimental_distribute_dataset(make_dataset(1024, seed=1).shuffle(1024, seed=1).batch(BATCH))
    test_data = strategy.experimental_distribute_dataset(make_dataset(512, seed=2).batch(BATCH))

    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((8, 8)),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(32, activation="relu"),
                tf.keras.layers.Dense(10),
            ]
        )
        optimizer = tf.keras.optimizers.Adam(args.lr)
        optimizer.build(model.trainable_variables)
    epochs_done = tf.Variable(0)

    @tf.function
    def train(batch):
        """Take one step on every worker and return the mean loss over the whole batch."""

        def step(images, labels):
            with tf.GradientTape() as tape:
                losses = tf.keras.losses.sparse_categorical_crossentropy(labels, model(images), from_logits=True)
                loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(step, batch), axis=None)

    @tf.function
    def test(batch):
        """Return how many of a batch are classified correctly, and of how many."""

        def step(images, labels):
            right = tf.argmax(model(images), axis=1) == labels
            return tf.reduce_sum(tf.cast(right, tf.int64)), tf.size(right, tf.int64)

        return [strategy.reduce("SUM", number, axis=None) for number in strategy.run(step, batch)]

    # Every worker has to take part in saving, but only the chief's copy is kept.
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epochs_done=epochs_done)
    private = tempfile.TemporaryDirectory()
    chief = is_chief(strategy)
    directory = CHECKPOINT_DIR if chief else private.name
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=2)
    if latest := tf.train.latest_checkpoint(CHECKPOINT_DIR):
        checkpoint.restore(latest)
        print(f"resumed after epoch {int(epochs_done)}", flush=True)

    for epoch in range(int(epochs_done) + 1, args.epochs + 1):
        losses = [float(train(batch)) for batch in train_data]
        right, count = np.sum([test(batch) for batch in test_data], axis=0)
        print(f"epoch {epoch}: loss {np.mean(losses):.6f}, accuracy {right / count:.4f}", flush=True)
        epochs_done.assign(epoch)
        manager.save()

    path = (OUTPUT_DIR if chief else Path(private.name)) / "model.keras"
    path.parent.mkdir(parents=True, exist_ok=True)
    model.save(path)
    private.cleanup()
    if chief:
        print(f"saved {path}")


def make_dataset(count: int, seed: int) -> tf.data.Dataset:
    """Ten patterns of 8x8, and noisy copies of them: put your own data here. Every worker uses its own part."""
    patterns = np.random.default_rng(0).normal(size=(10, 8, 8))
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count)
    images = patterns[labels] + rng.normal(scale=2.5, size=(count, 8, 8))
    return tf.data.Dataset.from_tensor_slices((images.astype("float32"), labels))


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Return whether this worker saves: the chief does, or worker 0 without a chief."""
    me = strategy.cluster_resolver
    jobs = me.cluster_spec().as_dict()
    return not jobs or me.task_type == "chief" or ("chief" not in jobs and me.task_id == 0)


if __name__ == "__main__":
    main()
