"""Train on handwritten digits with PyTorch's DistributedDataParallel, on all workers.

`drumline train` starts one process per worker; each trains on its part of every batch, and all hold the same model.
`python torch_ddp.py` trains in one process, on whole batches, with the same results.

Needs PyTorch, and scikit-learn for its digits, or mnist.npz in the data folder.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # if imported after the group was made, it would keep the group's threads at the end
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from drumline import runtime

BATCH = 64  # of all workers together
RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if CUDA else torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.005)
    args = parser.parse_args()
    runtime.record_errors()

    if WORLD_SIZE > 1:
        dist.init_process_group("nccl" if CUDA else "gloo")  # connects to the others by RANK, MASTER_ADDR and so on
    train_images, train_labels, test_images, test_labels = load_digits()
    torch.manual_seed(1)
    model = make_model(train_images.shape[-1]).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), args.lr)
    # Before the next statement, in which all wait for each other: so no worker saves while another one still reads.
    epochs_done = load_checkpoint(model, optimizer)
    # Copies the weights of the first worker to all others, and averages the gradients.
    parallel = DistributedDataParallel(model) if WORLD_SIZE > 1 else model

    batches = make_batches(train_images, train_labels)
    for epoch in range(epochs_done + 1, args.epochs + 1):
        batches.sampler.set_epoch(epoch)  # otherwise every epoch would have the order of the first one
        total = torch.zeros((), device=DEVICE)
        for images, labels in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(images.to(DEVICE)), labels.to(DEVICE))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        loss = add_up(total) / (len(batches) * WORLD_SIZE)
        accuracy = add_up(count_right(model, test_images, test_labels)) / len(test_labels)
        print(f"epoch {epoch}: loss {loss:.6f}, accuracy {accuracy:.4f}", flush=True)
        runtime.report(step=epoch, loss=loss, accuracy=accuracy)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        save(runtime.checkpoint_dir() / "last.pt", state)

    path = runtime.output_dir() / "model.pt"
    save(path, model.state_dict())
    if runtime.is_chief():
        print(f"saved {path}", flush=True)
    if WORLD_SIZE > 1:
        dist.destroy_process_group()


def make_model(size: int) -> nn.Module:
    """Return a network for square images of this size."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * ((size - 2) // 2) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def make_batches(images: torch.Tensor, labels: torch.Tensor) -> DataLoader:
    """Return this worker's part of every batch: the order is the same on all workers, and rows are taken in turn."""
    data = TensorDataset(images, labels)
    # If the rows cannot be divided evenly, the last ones are left out; otherwise some would be used twice.
    sampler = DistributedSampler(data, WORLD_SIZE, RANK, shuffle=True, seed=1, drop_last=True)
    return DataLoader(data, BATCH // WORLD_SIZE, sampler=sampler)


def count_right(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the number of correct predictions in this worker's part of the test data."""
    with torch.no_grad():
        scores = model(images[RANK::WORLD_SIZE].to(DEVICE))
    return (scores.argmax(1) == labels[RANK::WORLD_SIZE].to(DEVICE)).sum()


def add_up(value: torch.Tensor) -> float:
    """Return the sum over all workers."""
    if WORLD_SIZE > 1:
        dist.all_reduce(value)
    return value.item()


def load_checkpoint(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Restore the last checkpoint, if there is one, and return its epoch, else 0."""
    path = runtime.checkpoint_dir() / "last.pt"
    if not path.exists():
        return 0
    state = torch.load(path, map_location=DEVICE)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print(f"resumed after epoch {state['epoch']}", flush=True)
    return state["epoch"]


def save(path: Path, state: dict) -> None:
    """Save on the chief only, since all have the same state. The file is replaced atomically."""
    if runtime.is_chief():
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)


def load_digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
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
    images = torch.from_numpy((images / brightest).astype("float32")[:, np.newaxis])
    labels = torch.from_numpy(labels.astype("int64"))
    return images[:count], labels[:count], images[count:], labels[count:]


if __name__ == "__main__":
    main()
