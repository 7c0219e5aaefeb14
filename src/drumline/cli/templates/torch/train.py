"""Classify ten noisy patterns, with DistributedDataParallel on several workers.

Needs PyTorch and numpy. `python train.py` runs in a single process; `drumline train` starts one process per
worker and sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # imported after the group is created, it would keep the group's threads alive at exit
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

OUTPUT_DIR = Path(os.environ.get("OUTPUT_DIR", "output"))
CHECKPOINT_DIR = Path(os.environ.get("CHECKPOINT_DIR", OUTPUT_DIR / "checkpoint"))
RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
BATCH = 64  # of all workers together


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if WORLD_SIZE > 1:
        dist.init_process_group("nccl" if cuda else "gloo")

    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), args.lr)
    epochs_done = load_checkpoint(model, optimizer, device)
    parallel = DistributedDataParallel(model) if WORLD_SIZE > 1 else model  # averages the gradients

    train_data, test_data = make_dataset(1024, seed=1), make_dataset(512, seed=2)
    train_part = DistributedSampler(train_data, WORLD_SIZE, RANK, seed=1)
    test_part = DistributedSampler(test_data, WORLD_SIZE, RANK, shuffle=False)
    train_batches = DataLoader(train_data, BATCH // WORLD_SIZE, sampler=train_part)
    test_batches = DataLoader(test_data, BATCH // WORLD_SIZE, sampler=test_part)

    for epoch in range(epochs_done + 1, args.epochs + 1):
        train_part.set_epoch(epoch)
        losses = []
        for images, labels in train_batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        with torch.no_grad():
            rights = [model(images.to(device)).argmax(1) == labels.to(device) for images, labels in test_batches]
        loss = average(torch.stack(losses))
        accuracy = average(torch.cat(rights).float())
        print(f"epoch {epoch}: loss {loss:.6f}, accuracy {accuracy:.4f}", flush=True)
        save(
            CHECKPOINT_DIR / "last.pt",
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
        )

    save(OUTPUT_DIR / "model.pt", model.state_dict())
    if RANK == 0:
        print(f"saved {OUTPUT_DIR / 'model.pt'}")
    if WORLD_SIZE > 1:
        dist.destroy_process_group()


def make_dataset(count: int, seed: int) -> TensorDataset:
    """Ten patterns of 8x8, and noisy copies of them: put your own data here."""
    patterns = np.random.default_rng(0).normal(size=(10, 8, 8))
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count)
    images = patterns[labels] + rng.normal(scale=2.5, size=(count, 8, 8))
    return TensorDataset(torch.from_numpy(images.astype("float32")), torch.from_numpy(labels))


def average(values: torch.Tensor) -> float:
    """Return the mean of the values of all workers, which have equally many."""
    mean = values.mean()
    if WORLD_SIZE > 1:
        dist.all_reduce(mean)
    return mean.item() / WORLD_SIZE


def load_checkpoint(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Continue from the last checkpoint, if there is one; return its number of epochs."""
    path = CHECKPOINT_DIR / "last.pt"
    if not path.exists():
        return 0
    state = torch.load(path, map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print(f"resumed after epoch {state['epoch']}", flush=True)
    return state["epoch"]


def save(path: Path, state: object) -> None:
    """Save on rank 0 only; the file is replaced atomically."""
    if RANK == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)


if __name__ == "__main__":
    main()
