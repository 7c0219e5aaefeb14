"""Train a model on parameter servers to write the titles of GitHub issues from their bodies.

It is the model of the Kubeflow guide: an encoder reads a body, and a decoder continues from the encoder's state and
writes the title word by word.

`drumline train` makes the data once (prepare.py) and starts one process per replica, all with this script. The chief
schedules steps on free workers, saves after every epoch, and finally writes titles for issues that were held out from
the training. Each worker runs steps on its own issues; each ps holds a part of the variables.

`python train.py` runs the same steps in one process; it makes the data first if there is none.

Needs TensorFlow.
"""

import argparse
import json
import os
import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf
from prepare import END, PADDING, START, prepare

from drumline import runtime
from drumline.runtime.tensorflow import strategy

DATA_DIR = Path(os.environ.get("DATA_DIR", "data"))
BATCH = 64  # of one step, on one worker
SHOWN = 5  # issues that are printed at the end


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--units", type=int, default=48, help="how much is remembered of an issue; 300 in the guide")
    args = parser.parse_args()
    runtime.record_errors()

    runtime.serve_if_server()  # workers and ps do not return; drumline stops them when the chief has finished
    distribution = strategy()
    workers = len(runtime.cluster().get("worker", ()))
    if workers:
        coordinator = tf.distribute.coordinator.ClusterCoordinator(distribution)
    else:
        coordinator = Alone()
        prepare(DATA_DIR)
    vocabulary = json.loads((DATA_DIR / "vocabulary.json").read_text())

    tf.keras.utils.set_random_seed(1)
    with distribution.scope():  # variables are distributed over the parameter servers
        model = make_model(vocabulary, args.units)
        optimizer = tf.keras.optimizers.Adam(args.lr)
        optimizer.build(model.trainable_variables)
    print_places(model.variables + optimizer.variables)
    train(coordinator, distribution, model, optimizer, args.epochs, vocabulary)

    path = runtime.output_dir() / "model.keras"
    model.save(path)
    shutil.copy(DATA_DIR / "vocabulary.json", path.parent)
    print(f"saved {path}", flush=True)
    show(tf.keras.models.load_model(path), vocabulary)  # the saved model, with its variables in this process


def make_model(vocabulary: dict, units: int) -> tf.keras.Model:
    """Return the model: from a body and the beginning of its title to the next word of the title."""
    layers = tf.keras.layers
    bodies = tf.keras.Input((vocabulary["body_length"],), dtype="int32")
    read = layers.Embedding(len(vocabulary["body"]), units)(bodies)
    known = layers.GRU(units)(read)

    titles = tf.keras.Input((vocabulary["title_length"],), dtype="int32")
    written = layers.Embedding(len(vocabulary["title"]), units)(titles)
    # The decoder starts with the state of the encoder; otherwise titles would not depend on bodies.
    written = layers.GRU(units, return_sequences=True)(written, initial_state=known)
    return tf.keras.Model([bodies, titles], layers.Dense(len(vocabulary["title"]))(written))


def train(coordinator, distribution, model, optimizer, epochs: int, vocabulary: dict) -> None:
    """Train on the workers of the coordinator, from the last checkpoint if there is one."""

    def learn(bodies, titles):
        # Each variable is fetched once. The layers themselves would ask the parameter servers again for every word.
        weights = [tf.convert_to_tensor(variable) for variable in model.trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            guessed, _ = model.stateless_call(weights, model.non_trainable_variables, [bodies, before(titles)])
            loss, words = add_losses(guessed, titles)
            mean = loss / words
        optimizer.apply_gradients(zip(tape.gradient(mean, weights), model.trainable_variables, strict=True))
        return loss, words, tf.cast(len(bodies), tf.float32)

    @tf.function
    def step(batches):
        """Train on the worker's next batch; return its loss, its words and its issues; zeros if no batch is left."""
        batch = batches.get_next_as_optional()
        if batch.has_value():
            return distribution.run(learn, batch.get_value())
        return tf.constant(0.0), tf.constant(0.0), tf.constant(0.0)

    epochs_done = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epochs_done=epochs_done)
    manager = tf.train.CheckpointManager(checkpoint, runtime.checkpoint_dir(), max_to_keep=2)
    if manager.restore_or_initialize():
        print(f"resumed after epoch {int(epochs_done)}", flush=True)

    for epoch in range(int(epochs_done) + 1, epochs + 1):
        make = partial(make_batches, vocabulary, seed=epoch)
        batches = iter(coordinator.create_per_worker_dataset(make))  # each worker makes its own data set
        loss = words = issues = 0.0
        while (left := vocabulary["train"] - issues) > 0:
            # A free worker takes the next step. A step on a worker without issues left returns 0 issues, so further
            # steps are scheduled until all issues are used.
            results = [coordinator.schedule(step, (batches,)) for _ in range(int(np.ceil(left / BATCH)))]
            coordinator.join()
            loss, words, issues = np.sum([(loss, words, issues), *coordinator.fetch(results)], axis=0)
        print(f"epoch {epoch}: loss {loss / words:.4f}, {issues:.0f} issues", flush=True)
        runtime.report(step=epoch, loss=loss / words)
        epochs_done.assign(epoch)
        manager.save()


def show(model: tf.keras.Model, vocabulary: dict) -> None:
    """Print the loss on issues that were held out, and the titles that the model writes for some of them."""
    numbers = np.loadtxt(DATA_DIR / "held_out.txt", dtype="int32", ndmin=2)
    bodies, titles = np.split(numbers, [vocabulary["body_length"]], axis=1)
    guess = tf.function(lambda bodies, titles: model([bodies, before(titles)]))
    # With shuffled bodies the loss must be higher, otherwise the decoder does not use the encoder.
    for name, shown in ("held out", bodies), ("held out, bodies shuffled", np.roll(bodies, 1, axis=0)):
        loss, words = add_losses(guess(shown, titles), titles)
        print(f"{name}: loss {loss / words:.4f}", flush=True)

    written = np.full_like(titles[:SHOWN], PADDING)
    for place in range(vocabulary["title_length"]):  # the most likely next word
        written[:, place] = np.argmax(guess(bodies[:SHOWN], written)[:, place], axis=1)
    for body, title, summary in zip(bodies, titles, written, strict=False):
        print("issue:  ", spell(body, vocabulary["body"]))
        print("title:  ", spell(title, vocabulary["title"]))
        print("summary:", spell(summary, vocabulary["title"]), flush=True)


def before(titles: tf.Tensor) -> tf.Tensor:
    """Return the input of the decoder: the titles, shifted by one word."""
    return tf.concat([tf.fill([len(titles), 1], START), titles[:, :-1]], axis=1)


def add_losses(guessed: tf.Tensor, titles: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the sum of the losses of all words of the titles, and the number of words."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(titles, guessed)
    real = tf.cast(titles != PADDING, tf.float32)
    return tf.reduce_sum(losses * real), tf.reduce_sum(real)


def spell(numbers: np.ndarray, words: list[str]) -> str:
    """Return the words of these numbers, up to the end."""
    count = np.argmax([*numbers, END] == np.int32(END))
    return " ".join(words[number] for number in numbers[:count] if number != PADDING)


def make_batches(vocabulary: dict, *, seed: int) -> tf.data.Dataset:
    """Return bodies and titles for one worker, in an order that depends on the seed; called on the worker."""
    data = tf.data.TextLineDataset(str(DATA_DIR / "train.txt"))
    if workers := len(runtime.cluster().get("worker", ())):
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        data = data.shard(workers, worker)  # every issue belongs to one worker

    def read(lines):
        numbers = tf.strings.to_number(tf.strings.split(lines), tf.int32).to_tensor()
        return numbers[:, : vocabulary["body_length"]], numbers[:, vocabulary["body_length"] :]

    return data.shuffle(10_000, seed=seed).batch(BATCH).map(read)


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


def print_places(variables: list[tf.Variable]) -> None:
    """Print the size of the variables on each parameter server."""
    sizes: Counter[str] = Counter()
    for variable in variables:
        place = tf.DeviceSpec.from_string(variable.value.device)
        sizes[f"ps.{place.task}" if place.job == "ps" else "this process"] += int(np.prod(variable.shape))
    for name, size in sorted(sizes.items()):
        print(f"{name} holds {size} numbers", flush=True)


if __name__ == "__main__":
    main()
