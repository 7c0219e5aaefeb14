"""Train on handwritten digits with JAX: every batch is divided among the devices of all workers.

`drumline train` starts one process per worker; each trains on its part of every batch, and all hold the same model.
`python jax_digits.py` trains in one process, on whole batches, with the same results.

Needs JAX, and scikit-learn for its digits, or mnist.npz in the data folder.
"""

import argparse
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from drumline import runtime

BATCH = 64  # of all workers together, to be divided evenly by their devices


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.5)
    args = parser.parse_args()
    runtime.record_errors()

    # Connects to the other workers; has to be called before anything else of JAX. A single process has no others.
    if "JAX_COORDINATOR_ADDRESS" in os.environ:
        jax.distributed.initialize()
    mesh = jax.make_mesh((jax.device_count(),), ("data",))  # the devices of all workers

    train_images, train_labels, test_images, test_labels = load_digits()
    weights, epochs_done = load_checkpoint() or (make_weights(train_images.shape[1]), 0)
    weights = jax.device_put(weights, NamedSharding(mesh, PartitionSpec()))  # a copy on each device

    for epoch in range(epochs_done + 1, args.epochs + 1):
        losses = []
        for rows in make_batches(len(train_labels), epoch):
            images, labels = spread(train_images[rows], mesh), spread(train_labels[rows], mesh)
            weights, loss = step(weights, images, labels, args.lr)
            losses.append(loss)
        loss = float(np.mean(losses))
        # Every worker has all weights, and evaluates the model itself.
        accuracy = float(np.mean(predict(jax.device_get(weights), test_images) == test_labels))
        print(f"epoch {epoch}: loss {loss:.6f}, accuracy {accuracy:.4f}", flush=True)
        runtime.report(step=epoch, loss=loss, accuracy=accuracy)
        save(runtime.checkpoint_dir() / "last.npz", {"epoch": epoch, **weights})

    path = runtime.output_dir() / "model.npz"
    save(path, weights)
    if runtime.is_chief():
        print(f"saved {path}", flush=True)


@jax.jit
def step(weights, images, labels, lr):
    """Run one step; since the batch is divided among devices, JAX averages over all workers."""

    def mean_loss(weights):
        chances = jax.nn.log_softmax(scores(weights, images))
        return -jnp.take_along_axis(chances, labels[:, np.newaxis], axis=1).mean()

    loss, gradients = jax.value_and_grad(mean_loss)(weights)
    return jax.tree.map(lambda weight, gradient: weight - lr * gradient, weights, gradients), loss


def scores(weights, images):
    hidden = jax.nn.relu(images @ weights["hidden"] + weights["hidden_bias"])
    return hidden @ weights["digits"] + weights["digits_bias"]


def predict(weights: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """Return the predicted digits."""
    return np.argmax(scores(weights, images), axis=1)


def make_weights(pixels: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)  # all workers start with the same weights
    return {
        "hidden": rng.normal(scale=pixels**-0.5, size=(pixels, 64)).astype("float32"),
        "hidden_bias": np.zeros(64, "float32"),
        "digits": rng.normal(scale=64**-0.5, size=(64, 10)).astype("float32"),
        "digits_bias": np.zeros(10, "float32"),
    }


def make_batches(count: int, epoch: int) -> np.ndarray:
    """Return the rows of each batch, in an order that depends on the epoch and is the same on all workers."""
    order = np.random.default_rng(epoch).permutation(count)
    return order[: count - count % BATCH].reshape(-1, BATCH)


def spread(batch: np.ndarray, mesh: Mesh) -> jax.Array:
    """Put this worker's part of a batch on its devices; all parts together are one array."""
    part = np.split(batch, jax.process_count())[jax.process_index()]
    return jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), part)


def load_checkpoint() -> tuple[dict[str, np.ndarray], int] | None:
    """Return the weights and the epoch of the last checkpoint, or None."""
    path = runtime.checkpoint_dir() / "last.npz"
    if not path.exists():
        return None
    weights = dict(np.load(path))
    epoch = int(weights.pop("epoch"))
    print(f"resumed after epoch {epoch}", flush=True)
    return weights, epoch


def save(path: Path, arrays: dict) -> None:
    """Save on the chief only, since all have the same state. The file is replaced atomically."""
    if runtime.is_chief():
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **arrays)
        partial.replace(path)


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
    images = (images / brightest).astype("float32").reshape(len(images), -1)
    labels = labels.astype("int32")
    return images[:count], labels[:count], images[count:], labels[count:]


if __name__ == "__main__":
    main()
