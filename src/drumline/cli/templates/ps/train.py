"""Classify ten noisy patterns, with variables on parameter servers and asynchronous workers.

Needs TensorFlow. The chief schedules steps on the workers and saves; worker and ps only serve, and each worker has its
own rows; the evaluator evaluates each checkpoint. `python train.py` runs in a single process.
"""

import argparse
import os
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf

OUTPUT_DIR = Path(os.environ.get("OUTPUT_DIR", "output"))
CHECKPOINT_DIR = Path(os.environ.get("CHECKPOINT_DIR", OUTPUT_DIR / "checkpoint"))
BATCH = 64  # of one step on one worker
ROWS = 1024  # of all workers together, per epoch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    me = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    match me.task_type:
        case "worker" | "ps":
            server = tf.distribute.Server(me.cluster_spec(), job_name=me.task_type, task_index=me.task_id)
            server.join()  # never returns: drumline stops this process when the chief has finished
        case "evaluator":
            evaluate(args.epochs)
        case "chief":
            strategy = tf.distribute.ParameterServerStrategy(me)
            coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
            train(args.epochs, args.lr, strategy, coordinator, workers=me.cluster_spec().num_tasks("worker"))
        case _:
            train(args.epochs, args.lr, tf.distribute.get_strategy(), None)


def train(
    epochs: int,
    lr: float,
    strategy: tf.distribute.Strategy,
    coordinator: tf.distribute.coordinator.ClusterCoordinator | None,
    workers: int = 0,
) -> None:
    """Train with the workers of a coordinator, or in this process without one."""
    with strategy.scope():
        model = make_model()
        optimizer = tf.keras.optimizers.Adam(lr)
        optimizer.build(model.trainable_variables)
    epochs_done = tf.Variable(0)

    def learn(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.keras.losses.sparse_categorical_crossentropy(labels, model(images), from_logits=True)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return tf.reduce_sum(losses), tf.size(losses)

    @tf.function
    def step(batches):
        """Learn from the worker's next batch; return the sum of its losses and its size, 0 if there is none left."""
        batch = batches.get_next_as_optional()
        if batch.has_value():
            return strategy.run(learn, batch.get_value())
        return tf.constant(0.0), tf.constant(0)

    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epochs_done=epochs_done)
    manager = tf.train.CheckpointManager(checkpoint, CHECKPOINT_DIR, max_to_keep=5)
    if manager.restore_or_initialize():
        print(f"resumed after epoch {int(epochs_done)}", flush=True)

    for epoch in range(int(epochs_done) + 1, epochs + 1):
        make = partial(make_batches, workers, seed=epoch)
        batches = iter(coordinator.create_per_worker_dataset(make) if coordinator else make())
        total, rows = 0.0, 0
        while rows < ROWS:
            # A free worker takes the next step. A worker without rows left returns 0 rows, so more steps may follow.
            steps = range(-(-(ROWS - rows) // BATCH))
            if coordinator:
                results = [coordinator.schedule(step, args=(batches,)) for _ in steps]
                coordinator.join()
                results = coordinator.fetch(results)
            else:
                results = [step(batches) for _ in steps]
            for loss, count in results:
                total, rows = total + float(loss), rows + int(count)
        print(f"epoch {epoch}: loss {total / rows:.6f}", flush=True)
        epochs_done.assign(epoch)
        manager.save()

    model.save(OUTPUT_DIR / "model.keras")
    print(f"saved {OUTPUT_DIR / 'model.keras'}")
    if coordinator is None:
        evaluate(epochs)


def evaluate(epochs: int) -> None:
    """Evaluate each new checkpoint, up to that of the last epoch."""
    model, epochs_done = make_model(), tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, epochs_done=epochs_done)
    images, labels = next(iter(make_dataset(512, seed=2).batch(512)))
    for path in tf.train.checkpoints_iterator(CHECKPOINT_DIR):
        checkpoint.restore(path).expect_partial()
        right = tf.argmax(model(images), axis=1) == labels
        print(f"epoch {int(epochs_done)}: accuracy {np.mean(right):.4f}", flush=True)
        if epochs_done >= epochs:
            break


def make_model() -> tf.keras.Model:
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def make_batches(workers: int, seed: int) -> tf.data.Dataset:
    """Return the batches of one worker, in another order for each seed; runs on the worker."""
    data = make_dataset(ROWS, seed=1)
    if workers:
        data = data.shard(workers, tf.distribute.coordinator.experimental_get_current_worker_index())
    return data.shuffle(ROWS, seed=seed).batch(BATCH)


def make_dataset(count: int, seed: int) -> tf.data.Dataset:
    """Ten patterns of 8x8, and noisy copies of them: put your own data here."""
    patterns = np.random.default_rng(0).normal(size=(10, 8, 8))
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count)
    images = patterns[labels] + rng.normal(scale=2.5, size=(count, 8, 8))
    return tf.data.Dataset.from_tensor_slices((images.astype("float32"), labels))


if __name__ == "__main__":
    main()
