"""From the first failure of a run to its card, and to the prompt: two workers of TensorFlow, one of which fails.

Run as `python -m bench.failure` from the checkout, with the environment of `scripts/environment tensorflow` built. In
the first case a worker of a mirrored training raises after some steps; in the second its script imports a module that
is not there, while the other worker waits for it. The time counts from the end of the failed process, as the run's
journal has it. The peer is the goal, in seconds: a ratio above 1 misses it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from bench.figures import Figure, note
from bench.hand import ROOT, environment
from drumline.run.event import ReplicaExited
from drumline.runtime.keeper import now
from drumline.store.journal import read_journal

REPETITIONS = 5
GOALS = {"card": 0.5, "prompt": 1.5}
COMMAND = "python -m bench.failure"

RAISES = """
import json, os
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
is_second = json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1
@tf.function
def step():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
for number in range(1, 10000):
    step()
    print("step", number, "loss 0.1", flush=True)
    if is_second and number == 20:
        raise ValueError("bad row")
"""
LACKS = """
import json, os
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    import a_module_that_is_not_there
import tensorflow as tf
tf.distribute.MultiWorkerMirroredStrategy()
"""
CASES = {"a worker raises": RAISES, "a worker lacks a module": LACKS}


def main() -> None:
    for name, script in CASES.items():
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            found = measure(Path(scratch), script)
        print(f"\n{name}: seconds from the end of its process")
        for what, goal in GOALS.items():
            seconds = statistics.median(each[what] for each in found)
            most = max(each[what] for each in found)
            print(f"  to the {what:<8}{seconds:>6.2f}  (at most {most:.2f}; goal {goal:g})")
            note(Figure(f"TensorFlow, {name}: to the {what}", seconds, goal, "goal", 1.0, COMMAND))


def measure(folder: Path, script: str) -> list[dict[str, float]]:
    """Let the run fail again and again; return when the card and the prompt came after each failure."""
    (folder / "train.py").write_text(script)
    (folder / "drumline.yml").write_text("project: bench\nrun: python train.py\nroles: {worker: 2}\n")
    home = folder / "home"
    env = {name: value for name, value in os.environ.items() if not name.startswith("DRUMLINE_")}
    env |= {"DRUMLINE_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
    drumline = [str(environment("tensorflow") / "bin" / "python"), "-m", "drumline"]
    found = []
    try:
        for number in range(1, REPETITIONS + 1):
            process = subprocess.Popen(
                [*drumline, "train"], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            card = None
            for line in process.stdout or ():
                if card is None and line.startswith("┃".encode()):
                    card = now()
            process.wait()
            prompt = now()
            failed = _first_end(home / "runs" / str(number) / "events.jsonl")
            if card is None:
                raise RuntimeError("no card was shown")
            found.append({"card": card - failed, "prompt": prompt - failed})
    finally:
        subprocess.run([*drumline, "warm", "stop"], cwd=folder, env=env, check=False, stdout=subprocess.DEVNULL)
    return found


def _first_end(journal: Path) -> float:
    """When the first process ended."""
    events = (record.event for record in read_journal(journal))
    return min(event.at_seconds for event in events if isinstance(event, ReplicaExited))


if __name__ == "__main__":
    main()
