"""Train on handwritten digits with TensorFlow and a custom training loop, on all workers.

`drumline train` starts one process per worker; each trains on its part of every batch, and all hold the same model.
`python custom_training_mnist.py` trains in one process, on whole batches, with the same results.

Needs TensorFlow, and scikit-learn for its digits, or mnist.npz in the data folder.
"""

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import tensorflow as tf

from drumline import runtime
from drumline.runtime.tensorflow import strategy

BATCH = 64  # of all workers together


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.002)
    args = parser.parse_args()
    runtime.record_errors()

    # Connects to the other workers; has to be called before anything else of TensorFlow.
    distribution = strategy()
    tf.keras.utils.set_random_seed(1)  # all workers start with the same weights

    train_images, train_labels, test_images, test_labels = load_digits()
    train_data = distribution.experimental_distribute_dataset(make_batches(train_images, train_labels, train=True))
    test_data = distribution.experimental_distribute_dataset(make_batches(test_images, test_labels, train=False))
    with distribution.scope():
        model = make_model(train_images.shape[1:])
        optimizer = tf.keras.optimizers.Adam(args.lr)
        optimizer.build(model.trainable_variables)

    @tf.function
    def train(batch):
        """Take one step on every worker and return the mean loss over the whole batch."""

        def step(images, labels):
            with tf.GradientTape() as tape:
                losses = tf.keras.losses.sparse_categorical_crossentropy(labels, model(images, training=True))
                # The worker's part of the mean: the gradients of all workers are added.
                loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return distribution.reduce("SUM", distribution.run(step, batch), axis=None)

    @tf.function
    def test(batch):
        """Return the number of correct predictions for a batch, and the size of the batch."""

        def step(images, labels):
            right = tf.argmax(model(images), axis=1) == labels
            return tf.reduce_sum(tf.cast(right, tf.int64)), tf.size(right, tf.int64)

        return [distribution.reduce("SUM", number, axis=None) for number in distribution.run(step, batch)]

    # Every worker has to take part in saving; only the files of the chief are kept, and all workers restore these.
    epochs_done = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epochs_done=epochs_done)
    folder = runtime.write_dir(runtime.checkpoint_dir())
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
    if latest := tf.train.latest_checkpoint(runtime.checkpoint_dir()):
        checkpoint.restore(latest)
        print(f"resumed after epoch {int(epochs_done)}", flush=True)

    writer = make_writer()
    for epoch in range(int(epochs_done) + 1, args.epochs + 1):
        loss = np.mean([float(train(batch)) for batch in train_data])
        right, count = np.sum([test(batch) for batch in test_data], axis=0)
        print(f"epoch {epoch}: loss {loss:.6f}, accuracy {right / count:.4f}", flush=True)
        runtime.report(step=epoch, loss=loss, accuracy=right / count)
        if writer:
            with writer.as_default(step=epoch):
                tf.summary.scalar("loss", loss)
                tf.summary.scalar("accuracy", right / count)
            writer.flush()  # otherwise it writes every two minutes
        epochs_done.assign(epoch)
        manager.save()

    folder = runtime.write_dir(runtime.output_dir())
    model.save(folder / "model.keras")
    model.export(folder / "saved_model", verbose=False)  # for TensorFlow Serving
    if runtime.is_chief():
        print(f"saved {folder / 'model.keras'}", flush=True)


def make_model(shape: tuple[int, ...]) -> tf.keras.Model:
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input(shape),
            tf.keras.layers.Conv2D(16, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )


def make_batches(images: np.ndarray, labels: np.ndarray, *, train: bool) -> tf.data.Dataset:
    """Return the batches of all workers together; each worker takes its rows of every batch."""
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    if train:
        # With a seed, so that all workers have the same order and no row occurs twice; shuffled only once, so that a
        # run that continues from a checkpoint has the same order as a run without interruption.
        data = data.shuffle(len(images), seed=1, reshuffle_each_iteration=False)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.batch(BATCH, drop_remainder=train).with_options(options)


def load_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images and labels for training, then those for testing: of MNIST if available, else of scikit-learn."""
    path = Path(os.environ.get("DATA_DIR", ".")) / "mnist.npz"
    if path.exists():
        with np.load(path) as file:
            images, labels = (np.concatenate([file[f"{kind}_train"], file[f"{kind}_test"]]) for kind in "xy")
            count, brightest = len(file["x_train"]), 255
    else:
        from sklearn import datasets

        digits = datasets.load_digits()
        images, labels, count, brightest = digits.images, digits.target, 1536, 16
    images = (images / brightest).astype("float32")[..., np.newaxis]
    labels = labels.astype("int64")
    return images[:count], labels[:count], images[count:], labels[count:]


def make_writer() -> tf.summary.SummaryWriter | None:
    """Return a writer of summaries on the chief if TensorBoard is installed, else None."""
    if runtime.is_chief() and find_spec("tensorboard"):
        return tf.summary.create_file_writer(str(runtime.output_dir() / "summaries"))
    return None


if __name__ == "__main__":
    main()
