"""Train on handwritten digits with a model on parameter servers; workers do not wait for each other.

`drumline train` starts one process per replica, and all run this script:

- the chief makes the model, schedules steps on free workers, and saves after every epoch;
- each worker runs steps on its own rows; each ps holds a part of the variables;
- the evaluator evaluates each checkpoint, and exits after the last one.

`python parameter_server.py` runs the same steps in one process.

Needs TensorFlow, and scikit-learn for its digits, or mnist.npz in the data folder.
"""

import argparse
import os
from collections import Counter
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import tensorflow as tf

from drumline import runtime
from drumline.runtime.tensorflow import strategy

BATCH = 64  # of one step, on one worker


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.005)
    args = parser.parse_args()
    runtime.record_errors()

    runtime.serve_if_server()  # workers and ps do not return; drumline stops them when the chief has finished
    if runtime.role() == "evaluator":
        evaluate(args.epochs)
    else:
        train(args.epochs, args.lr)


def train(epochs: int, lr: float) -> None:
    """Train with the workers of the cluster, or in this process if there is no cluster."""
    distribution = strategy()
    workers = len(runtime.cluster().get("worker", ()))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(distribution) if workers else Alone()

    tf.keras.utils.set_random_seed(1)
    images, labels, test_images, test_labels = load_digits()
    with distribution.scope():  # variables are distributed over the parameter servers
        model = make_model(images.shape[1:])
        optimizer = tf.keras.optimizers.Adam(lr)
        optimizer.build(model.trainable_variables)
    print_places(model.variables + optimizer.variables)

    def learn(some_images, some_labels):
        with tf.GradientTape() as tape:
            predicted = model(some_images, training=True)
            losses = tf.keras.losses.sparse_categorical_crossentropy(some_labels, predicted)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return tf.reduce_sum(losses), tf.size(losses)

    @tf.function
    def step(batches):
        """Train on the worker's next batch; return the sum of its losses and its size, 0 if there is no batch left."""
        batch = batches.get_next_as_optional()
        if batch.has_value():
            return distribution.run(learn, batch.get_value())
        return tf.constant(0.0), tf.constant(0)

    # The chief reads and writes the variables of all parameter servers; only the chief saves.
    epochs_done = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epochs_done=epochs_done)
    manager = tf.train.CheckpointManager(checkpoint, runtime.checkpoint_dir(), max_to_keep=5)
    if manager.restore_or_initialize():
        print(f"resumed after epoch {int(epochs_done)}", flush=True)

    writer = make_writer()
    for epoch in range(int(epochs_done) + 1, epochs + 1):
        make = partial(make_batches, images, labels, workers, seed=epoch)
        batches = iter(coordinator.create_per_worker_dataset(make))  # each worker makes its own data set
        total, rows = 0.0, 0
        while rows < len(images):
            # A free worker takes the next step. A step on a worker without rows left returns 0 rows, so further steps
            # are scheduled until all rows are used.
            results = [coordinator.schedule(step, (batches,)) for _ in range(-(-(len(images) - rows) // BATCH))]
            coordinator.join()
            for loss, count in coordinator.fetch(results):
                total, rows = total + float(loss), rows + int(count)
        print(f"epoch {epoch}: loss {total / rows:.6f}, {rows} rows", flush=True)
        runtime.report(step=epoch, loss=total / rows)
        if writer:
            with writer.as_default(step=epoch):
                tf.summary.scalar("loss", total / rows)
        epochs_done.assign(epoch)
        manager.save()

    path = runtime.output_dir() / "model.keras"
    model.save(path)
    print(f"saved {path}, accuracy {accuracy(model, test_images, test_labels):.4f}", flush=True)


def evaluate(epochs: int) -> None:
    """Evaluate each checkpoint when it is written, until that of the last epoch."""
    _, _, images, labels = load_digits()
    model, epochs_done = make_model(images.shape[1:]), tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, epochs_done=epochs_done)
    for path in tf.train.checkpoints_iterator(runtime.checkpoint_dir()):
        checkpoint.restore(path).expect_partial()  # the optimizer is not restored
        print(f"epoch {int(epochs_done)}: accuracy {accuracy(model, images, labels):.4f}", flush=True)
        if epochs_done >= epochs:
            break


class Alone:
    """Replaces the coordinator in a single process: runs each step at once."""

    def create_per_worker_dataset(self, make):
        return make()

    def schedule(self, step, args):
        return step(*args)

    def join(self):
        pass

    def fetch(self, results):
        return results


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


def make_batches(images: np.ndarray, labels: np.ndarray, workers: int, *, seed: int) -> tf.data.Dataset:
    """Return the batches of one worker, in an order that depends on the seed; called on the worker."""
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    if workers:
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        data = data.shard(workers, worker)  # every row belongs to one worker
    return data.shuffle(len(images), seed=seed).batch(BATCH)


def accuracy(model: tf.keras.Model, images: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(np.argmax(model(images), axis=1) == labels))


def print_places(variables: list[tf.Variable]) -> None:
    """Print the size of the variables on each parameter server."""
    sizes: Counter[str] = Counter()
    for variable in variables:
        place = tf.DeviceSpec.from_string(variable.value.device)
        sizes[f"ps.{place.task}" if place.job == "ps" else "this process"] += int(np.prod(variable.shape))
    for name, size in sorted(sizes.items()):
        print(f"{name} holds {size} numbers", flush=True)


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
    """Return a writer of summaries if TensorBoard is installed, else None."""
    if find_spec("tensorboard"):
        return tf.summary.create_file_writer(str(runtime.output_dir() / "summaries"))
    return None


if __name__ == "__main__":
    main()
