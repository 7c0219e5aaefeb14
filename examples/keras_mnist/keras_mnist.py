"""Train on handwritten digits with `model.fit` of Keras 3, on all workers.

`drumline train` starts one process per worker; each trains on its part of every batch, and all hold the same model.
`python keras_mnist.py` trains in one process, on whole batches, with the same results.

Needs TensorFlow, and scikit-learn for its digits, or mnist.npz in the data folder.
"""

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from drumline import runtime
from drumline.runtime.keras import backup
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
    keras.utils.set_random_seed(1)  # all workers start with the same weights

    train_images, train_labels, test_images, test_labels = load_digits()
    with distribution.scope():
        model = make_model(train_images.shape[1:])
        model.compile(keras.optimizers.Adam(args.lr), "sparse_categorical_crossentropy", metrics=["accuracy"])

    model.fit(
        make_batches(train_images, train_labels, shuffle=True),
        validation_data=make_batches(test_images, test_labels),
        epochs=args.epochs,
        shuffle=False,  # the data set is already shuffled
        verbose=0,
        callbacks=[
            keras.callbacks.LambdaCallback(on_epoch_end=show_epoch),
            backup(),  # after every epoch; after a restart, training continues from it
            *summaries(),
        ],
    )

    # Every worker has to take part in saving; only the files of the chief are kept.
    folder = runtime.write_dir(runtime.output_dir())
    model.save(folder / "model.keras")
    model.export(folder / "saved_model", verbose=False)  # for TensorFlow Serving
    if runtime.is_chief():
        print(f"saved {folder / 'model.keras'}", flush=True)


def make_model(shape: tuple[int, ...]) -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Input(shape),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def make_batches(images: np.ndarray, labels: np.ndarray, *, shuffle: bool = False) -> tf.data.Dataset:
    """Return the batches of all workers together; each worker takes its rows of every batch."""
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    if shuffle:
        # With a seed, so that all workers have the same order and no row occurs twice; shuffled only once, so that a
        # run that continues from a checkpoint has the same order as a run without interruption.
        data = data.shuffle(len(images), seed=1, reshuffle_each_iteration=False)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.batch(BATCH).with_options(options)


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


def show_epoch(epoch: int, logs: dict[str, float]) -> None:
    print(f"epoch {epoch + 1}: loss {logs['loss']:.6f}, accuracy {logs['val_accuracy']:.4f}", flush=True)
    runtime.report(step=epoch + 1, loss=logs["loss"], accuracy=logs["val_accuracy"])


def summaries() -> list[keras.callbacks.Callback]:
    """Return a callback that writes summaries, on the chief, if TensorBoard is installed."""
    if runtime.is_chief() and find_spec("tensorboard"):
        return [keras.callbacks.TensorBoard(runtime.output_dir() / "summaries", write_graph=False)]
    return []


if __name__ == "__main__":
    main()
