"""Fit a straight line to noisy points, once per replica: no framework, no communication.

Needs only Python. It shows the variables that drumline sets for every replica of any framework. `python train.py` runs
in a single process.
"""

import argparse
import json
import os
import random
from pathlib import Path

# This replica. All variables have a default, so that the script also runs without drumline.
RUN = os.environ.get("DRUMLINE_RUN", "0")  # the run's number
ROLE = os.environ.get("DRUMLINE_ROLE", "worker")
INDEX = int(os.environ.get("DRUMLINE_INDEX", "0"))  # counts from 0 within the role
ATTEMPT = int(os.environ.get("DRUMLINE_ATTEMPT", "0"))  # counts the restarts of the run

# Shared by all replicas of a run. Checkpoints are kept over restarts.
OUTPUT_DIR = Path(os.environ.get("OUTPUT_DIR", "output"))
CHECKPOINT_DIR = Path(os.environ.get("CHECKPOINT_DIR", OUTPUT_DIR / "checkpoint"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    print(f"{ROLE}.{INDEX} of run {RUN}, attempt {ATTEMPT}", flush=True)

    # Replicas share the folders, so each writes its own file.
    checkpoint = CHECKPOINT_DIR / f"{ROLE}-{INDEX}.json"
    state = {"epoch": 0, "slope": 0.0, "offset": 0.0}
    if checkpoint.exists():
        state = json.loads(checkpoint.read_text())
        print(f"resumed after epoch {state['epoch']}", flush=True)

    points = make_points(200, seed=INDEX)
    for epoch in range(state["epoch"] + 1, args.epochs + 1):
        losses = []
        for x, y in points:
            error = state["slope"] * x + state["offset"] - y
            state["slope"] -= args.lr * error * x
            state["offset"] -= args.lr * error
            losses.append(error**2)
        state["epoch"] = epoch
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.6f}", flush=True)
        save(checkpoint, state)

    save(OUTPUT_DIR / f"{ROLE}-{INDEX}.json", state)


def make_points(count: int, seed: int) -> list[tuple[float, float]]:
    """Return points near y = 3x + 1: put your own data here."""
    rng = random.Random(seed)
    xs = [rng.uniform(-1, 1) for _ in range(count)]
    return [(x, 3 * x + 1 + rng.gauss(0, 0.1)) for x in xs]


def save(path: Path, state: dict) -> None:
    """The file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(state))
    partial.replace(path)


if __name__ == "__main__":
    main()
