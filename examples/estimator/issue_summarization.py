"""Train a model to write titles for issues with TensorFlow's Estimator and parameter servers, as in 2018.

`drumline train` starts a master, two workers and two parameter servers. The parameter servers hold the model; master
and workers run their own steps on their own part of the data, without waiting for each other; the master also saves,
evaluates and exports. `python issue_summarization.py` trains in one process, with as many steps on the same data.

Needs TensorFlow 2.15, the last one with Estimator. Trains on github_issues.csv in the data folder, with the columns
`issue_title` and `body`; without it, on generated issues.
"""

import argparse
import csv
import itertools
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import tensorflow as tf

from drumline import runtime

BATCH = 32  # of each process
BODY_LENGTH, TITLE_LENGTH = 70, 12  # at most so many words are used
BODY_WORDS, TITLE_WORDS = 8000, 4500  # at most so many are known
PADDING, UNKNOWN, START, END = range(4)  # the first numbers; words have the others


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--issues", type=int, default=1280, help="how many to use")
    args = parser.parse_args()
    runtime.record_errors()
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)  # so that Estimator prints its progress

    # Estimator evaluates on a `master` only; drumline writes `chief`, as newer versions of TensorFlow require.
    if "TF_CONFIG" in os.environ:
        os.environ["TF_CONFIG"] = os.environ["TF_CONFIG"].replace('"chief"', '"master"')
    config = tf.estimator.RunConfig(
        model_dir=str(runtime.checkpoint_dir()),
        tf_random_seed=1,
        save_checkpoints_steps=200,  # and an evaluation after each
        keep_checkpoint_max=2,
        log_step_count_steps=10,
        experimental_max_worker_delay_secs=0,  # otherwise worker 0 would start after 5 seconds, worker 1 after 10
    )
    if runtime.role() == "ps":
        tf.distribute.Server(config.cluster_spec, "ps", runtime.index()).join()  # until drumline stops it

    # All processes read the same issues and compute the same numbers for words, so they need not exchange them.
    issues = load_issues(args.issues)
    body_words = number_words((body for body, _ in issues), BODY_WORDS)
    title_words = number_words((title for _, title in issues), TITLE_WORDS)
    bodies = encode((body for body, _ in issues), body_words, BODY_LENGTH)
    titles = encode((title for _, title in issues), title_words, TITLE_LENGTH, marks=True)

    # Estimator does not divide the data, so that in an epoch of three processes each row would be used three times.
    # So each process takes every third row.
    processes = config.num_worker_replicas  # the master is one of them
    part = 0 if runtime.is_chief() else runtime.index() + 1
    count = len(issues) * 9 // 10  # for training; the rest is for testing
    count -= count % (processes * BATCH)
    steps = count // (processes * BATCH) * args.epochs  # of each process
    train_input = make_input(bodies[part:count:processes], titles[part:count:processes], args.epochs, shuffle=True)
    test_input = make_input(bodies[-len(issues) // 10 :], titles[-len(issues) // 10 :])

    model = make_model(len(body_words), len(title_words), args.lr)
    estimator = tf.keras.estimator.model_to_estimator(model, config=config)
    if not runtime.is_chief():
        wait_for_master()
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(train_input, max_steps=steps * processes, hooks=[OwnSteps(steps, steps * processes)]),
        tf.estimator.EvalSpec(test_input, steps=None, start_delay_secs=0, throttle_secs=0),
    )
    if runtime.is_chief():
        receive = make_serving_input({"body": bodies.shape[1], "title": titles.shape[1] - 1})
        path = estimator.export_saved_model(str(runtime.output_dir() / "saved_model"), receive).decode()
        print(f"saved {path}", flush=True)
        write_title = make_writer(path, title_words)
        for (body, _), row in zip(issues[-3:], bodies[-3:], strict=True):
            print(f"{write_title(row)!r} is the title for {body!r}", flush=True)


class OwnSteps(tf.estimator.SessionRunHook):
    """Counts the steps of this process. After its last step, the master waits for the others, and then saves."""

    def __init__(self, steps: int, of_all: int) -> None:
        self._steps, self._of_all, self._done = steps, of_all, 0

    def begin(self) -> None:
        self._step_of_all = tf.compat.v1.train.get_global_step()

    def after_create_session(self, *_: object) -> None:
        if runtime.is_chief():
            ready_file().touch()

    def after_run(self, context: tf.estimator.SessionRunContext, _: tf.estimator.SessionRunValues) -> None:
        self._done += 1
        if self._done < self._steps:
            return
        while runtime.is_chief() and context.session.run(self._step_of_all) < self._of_all:
            time.sleep(0.1)
        context.request_stop()

    def end(self, session: tf.compat.v1.Session) -> None:
        print(f"took {self._done} steps of its own; step {session.run(self._step_of_all)} of all", flush=True)


def wait_for_master() -> None:
    """Wait until the master has made the variables; Estimator itself would check only every 30 seconds."""
    while not ready_file().exists():
        time.sleep(0.1)


def ready_file() -> Path:
    """Return the file that exists when the model is ready; a different one for each attempt."""
    return runtime.checkpoint_dir() / f"ready-{runtime.attempt()}"


def make_model(body_words: int, title_words: int, lr: float) -> tf.keras.Model:
    """Return the model: from a body and the beginning of its title to the probabilities of the next word."""
    layers = tf.keras.layers
    body = layers.Input((None,), name="body")
    hidden = layers.BatchNormalization(momentum=0.9)(layers.Embedding(body_words + 4, 64)(body))
    _, meaning = layers.GRU(64, return_state=True)(hidden)
    title = layers.Input((None,), name="title")
    hidden = layers.BatchNormalization(momentum=0.9)(layers.Embedding(title_words + 4, 64)(title))
    hidden = layers.GRU(64, return_sequences=True)(hidden, initial_state=meaning)
    hidden = layers.BatchNormalization(momentum=0.9)(hidden)
    next_word = layers.Dense(title_words + 4, activation="softmax", name="next_word")(hidden)
    model = tf.keras.Model([body, title], next_word)
    model.compile(tf.keras.optimizers.legacy.Adam(lr), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def make_input(bodies: np.ndarray, titles: np.ndarray, epochs: int = 1, *, shuffle: bool = False) -> Callable:
    """Return batches: bodies and titles without their last word as input, titles without their first word as labels."""
    return tf.compat.v1.estimator.inputs.numpy_input_fn(
        {"body": bodies, "title": titles[:, :-1]}, titles[:, 1:], BATCH, epochs, shuffle
    )


def make_serving_input(lengths: dict[str, int]) -> Callable:
    """Return the inputs of the exported model."""

    def receive() -> tf.estimator.export.ServingInputReceiver:
        given = {name: tf.compat.v1.placeholder(tf.int64, (None, length), name) for name, length in lengths.items()}
        return tf.estimator.export.ServingInputReceiver(given, given)

    return receive


def make_writer(path: str, title_words: dict[str, int]) -> Callable[[np.ndarray], str]:
    """Load an exported model; return a function that writes a title for a body, each time with the likeliest word."""
    loaded = tf.saved_model.load(path)
    serve = loaded.signatures["serving_default"]
    words = {number: word for word, number in title_words.items()}
    length = serve.structured_input_signature[1]["title"].shape[1]

    def write_title(body: np.ndarray) -> str:
        title = [START]
        while len(title) < length and title[-1] != END:
            row = np.array([title + [PADDING] * (length - len(title))])
            chances = serve(body=tf.constant(body[np.newaxis]), title=tf.constant(row))["next_word"]
            title.append(int(np.argmax(chances[0, len(title) - 1])))
        return " ".join(words.get(number, "?") for number in title[1:] if number != END)

    return write_title


def load_issues(count: int) -> list[tuple[str, str]]:
    """Return bodies and titles: from github_issues.csv if it exists, else generated ones."""
    path = Path(os.environ.get("DATA_DIR", ".")) / "github_issues.csv"
    chance = random.Random(1)
    if path.exists():
        csv.field_size_limit(sys.maxsize)  # some bodies are long
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            issues = [(row["body"], row["issue_title"]) for row in csv.DictReader(file)]
        return chance.sample(issues, min(count, len(issues)))
    things = ["login page", "search", "docker image", "upload", "build", "api", "calendar", "printer"]
    troubles = ["crashes", "is slow", "hangs", "shows nothing", "needs a restart", "loses data"]
    systems = ["windows", "linux", "a phone", "firefox", "the cluster"]
    before = ["hello", "since the last update", "i do not know why but", "as soon as i open it", "sorry if known"]
    after = ["please help", "any idea", "this worked before", "see the log below", "thanks for your work"]
    issues = []
    for _ in range(count):
        thing, trouble, system = (chance.choice(some) for some in (things, troubles, systems))
        body = f"{chance.choice(before)} the {thing} on {system} {trouble} {chance.choice(after)}"
        issues.append((body, f"{thing} {trouble} on {system}"))
    return issues


def number_words(texts: Iterable[str], most: int) -> dict[str, int]:
    """Return the numbers of the most frequent words."""
    counted = Counter(itertools.chain.from_iterable(map(split, texts)))
    return {word: number for number, (word, _) in enumerate(counted.most_common(most), END + 1)}


def encode(texts: Iterable[str], words: dict[str, int], most: int, *, marks: bool = False) -> np.ndarray:
    """Return the numbers of each text's first words, in rows of the same length.

    With `marks`, a row has a start, an end and padding after them; without, it has padding in front, so that the
    encoder reads its words last.
    """
    rows = [[words.get(word, UNKNOWN) for word in split(text)[:most]] for text in texts]
    length = max(map(len, rows))
    if marks:
        return np.array([[START, *row, END] + [PADDING] * (length - len(row)) for row in rows])
    return np.array([[PADDING] * (length - len(row)) + row for row in rows])


def split(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


if __name__ == "__main__":
    main()
