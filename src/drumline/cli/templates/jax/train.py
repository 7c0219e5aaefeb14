"""Classify ten noisy patterns, with each batch sharded over the devices of all workers.

Needs jax and numpy. `python train.py` runs in a single process; `drumline train` starts one process per
worker and sets the variables that `jax.distributed.initialize()` reads.
"""

import argparse
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

OUTPUT_DIR = Path(os.environ.get("OUTPUT_DIR", "output"))
CHECKPOINT_DIR = Path(os.environ.get("CHECKPOINT_DIR", OUTPUT_DIR / "checkpoint"))
BATCH = 64  # of all workers together

if "JAX_COORDINATOR_ADDRESS" in os.environ:
    jax.distributed.initialize()  # before anything else of JAX

MESH = jax.make_mesh((jax.device_count(),), ("data",))
SPLIT = NamedSharding(MESH, PartitionSpec("data"))  # along the batch, over all devices
WHOLE = NamedSharding(MESH, PartitionSpec())  # a copy on each device


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    state = load_checkpoint() or {"epoch": np.array(0), **make_parameters()}
    epochs_done = int(state.pop("epoch"))
    parameters = jax.device_put(state, WHOLE)

    train_images, train_labels = make_data(1024, seed=1)
    test_images, test_labels = make_data(512, seed=2)
    for epoch in range(epochs_done + 1, args.epochs + 1):
        order = np.random.default_rng(epoch).permutation(len(train_labels))
        losses = []
        for rows in order.reshape(-1, BATCH):
            parameters, loss = step(parameters, spread(train_images[rows]), spread(train_labels[rows]), args.lr)
            losses.append(loss)
        right = accuracy(parameters, spread(test_images), spread(test_labels))
        print(f"epoch {epoch}: loss {np.mean(losses):.6f}, accuracy {right:.4f}", flush=True)
        save(CHECKPOINT_DIR / "last.npz", {"epoch": epoch, **parameters})

    save(OUTPUT_DIR / "model.npz", parameters)
    if jax.process_index() == 0:
        print(f"saved {OUTPUT_DIR / 'model.npz'}")


def predict(parameters, images):
    hidden = jax.nn.relu(images @ parameters["weights1"] + parameters["bias1"])
    return hidden @ parameters["weights2"] + parameters["bias2"]


@jax.jit
def step(parameters, images, labels, lr):
    """Take one step; the batch is sharded, so JAX averages over all workers."""

    def mean_loss(parameters):
        scores = jax.nn.log_softmax(predict(parameters, images))
        return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()

    loss, gradients = jax.value_and_grad(mean_loss)(parameters)
    return jax.tree.map(lambda value, gradient: value - lr * gradient, parameters, gradients), loss


@jax.jit
def accuracy(parameters, images, labels):
    return (predict(parameters, images).argmax(axis=1) == labels).mean()


def make_parameters() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {
        "weights1": rng.normal(scale=0.1, size=(64, 32)).astype("float32"),
        "bias1": np.zeros(32, "float32"),
        "weights2": rng.normal(scale=0.1, size=(32, 10)).astype("float32"),
        "bias2": np.zeros(10, "float32"),
    }


def make_data(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten patterns of 8x8, and noisy copies of them: put your own data here."""
    patterns = np.random.default_rng(0).normal(size=(10, 64))
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count)
    images = patterns[labels] + rng.normal(scale=2.5, size=(count, 64))
    return images.astype("float32"), labels.astype("int32")


def spread(batch: np.ndarray) -> jax.Array:
    """Put this worker's part of a batch on its devices."""
    part = np.array_split(batch, jax.process_count())[jax.process_index()]
    return jax.make_array_from_process_local_data(SPLIT, part)


def load_checkpoint() -> dict[str, np.ndarray] | None:
    path = CHECKPOINT_DIR / "last.npz"
    if not path.exists():
        return None
    state = dict(np.load(path))
    print(f"resumed after epoch {state['epoch']}", flush=True)
    return state


def save(path: Path, state: dict) -> None:
    """Save on process 0 only; the file is replaced atomically."""
    if jax.process_index() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **state)
        partial.replace(path)


if __name__ == "__main__":
    main()
