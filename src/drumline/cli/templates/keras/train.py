"""Learn to tell ten noisy patterns apart, with `model.fit` on every worker at once.

Needs TensorFlow and tf_keras. `python train.py` runs it alone, as one process; drumline starts one such
process per worker and gives each its TF_CONFIG.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

try:
    # Keras 3 cannot `fit` on several workers; tf_keras, its predecessor, can.
    import tf_keras as keras
except ImportError:
    sys.exit(f"tf_keras is missing: pip install --no-deps 'tf-keras=={tf.__version__.rpartition('.')[0]}.*'")

OUTPUT_DIR = Path(os.environ.get("OUTPUT_DIR", "output"))
CHECKPOINT_DIR = Path(os.environ.get("CHECKPOINT_DIR", OUTPUT_DIR / "checkpoint"))
BATCH = 64  # of all workers together


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    # Finds the other workers, so it comes before anything else of TensorFlow. Alone it is one worker.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(1)

    with strategy.scope():
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
        verbose=0,
        callbacks=[
            # Saves after every epoch and goes on from there when started again. All workers name the same folder:
            # only the chief writes to it.
            keras.callbacks.BackupAndRestore(str(CHECKPOINT_DIR), delete_checkpoint=False),
            keras.callbacks.LambdaCallback(on_epoch_end=show_epoch),
        ],
    )
    save_model(model, strategy)


def make_dataset(count: int, seed: int) -> tf.data.Dataset:
    """Ten patterns of 8x8, and noisy copies of them: put your own data here. Every worker takes its part of it."""
    patterns = np.random.default_rng(0).normal(size=(10, 8, 8))
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count)
    images = patterns[labels] + rng.normal(scale=2.5, size=(count, 8, 8))
    return tf.data.Dataset.from_tensor_slices((images.astype("float32"), labels))


def show_epoch(epoch: int, logs: dict[str, float]) -> None:
    print(f"epoch {epoch + 1}: loss {logs['loss']:.6f}, accuracy {logs['val_accuracy']:.4f}", flush=True)


def save_model(model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Save the model. Every worker has to take part, but only the chief's copy is kept."""
    if is_chief(strategy):
        OUTPUT_DIR.mkdir(parents=True, exist_ok=True)
        model.save(OUTPUT_DIR / "model.keras")
        print(f"saved {OUTPUT_DIR / 'model.keras'}")
    else:
        with tempfile.TemporaryDirectory() as private:
            model.save(Path(private) / "model.keras")


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Without a chief of its own, a cluster takes worker 0 for it."""
    me = strategy.cluster_resolver
    jobs = me.cluster_spec().as_dict()
    return not jobs or me.task_type == "chief" or ("chief" not in jobs and me.task_id == 0)


if __name__ == "__main__":
    main()
