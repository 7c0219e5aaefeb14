"""Classify ten noisy patterns, with `model.fit` on several workers.

Needs TensorFlow and drumline. `python train.py` runs in a single process; `drumline train` starts one process per
worker and sets TF_CONFIG for each. Where drumline is not installed, a copy of its folder `drumline/runtime` is enough.
"""

import argparse

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
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    # Connects to the other workers, so it comes before anything else of TensorFlow. It also lets `fit` of Keras 3 run
    # on several workers. Without TF_CONFIG there is one worker.
    distribution = strategy()
    keras.utils.set_random_seed(1)

    with distribution.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((8, 8)),
                keras.layers.Flatten(),
                keras.layers.Dense(32, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.Adam(args.lr),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )

    model.fit(
        make_dataset(1024, seed=1).shuffle(1024, seed=1).batch(BATCH),
        validation_data=make_dataset(512, seed=2).batch(BATCH),
        epochs=args.epochs,
        shuffle=False,  # the dataset is shuffled already
        verbose=0,
        callbacks=[
            backup(),  # saves after every epoch; a restarted run continues from there
            keras.callbacks.LambdaCallback(on_epoch_end=show_epoch),
        ],
    )
    # Every worker has to take part in saving; only the chief's copy is kept.
    folder = runtime.write_dir(runtime.output_dir())
    model.save(folder / "model.keras")
    if runtime.is_chief():
        print(f"saved {folder / 'model.keras'}")


def make_dataset(count: int, seed: int) -> tf.data.Dataset:
    """Ten patterns of 8x8, and noisy copies of them: put your own data here. Every worker uses its own part."""
    patterns = np.random.default_rng(0).normal(size=(10, 8, 8))
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count)
    images = patterns[labels] + rng.normal(scale=2.5, size=(count, 8, 8))
    return tf.data.Dataset.from_tensor_slices((images.astype("float32"), labels))


def show_epoch(epoch: int, logs: dict[str, float]) -> None:
    print(f"epoch {epoch + 1}: loss {logs['loss']:.6f}, accuracy {logs['val_accuracy']:.4f}", flush=True)
    runtime.report(step=epoch + 1, loss=logs["loss"], accuracy=logs["val_accuracy"])


if __name__ == "__main__":
    main()
