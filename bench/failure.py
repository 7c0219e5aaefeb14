"""From the first failure of a run to its card, and to the prompt: two workers, one of which fails.

Run as `python -m bench.failure` from the checkout, with the environments of `scripts/environment tensorflow` and of
`scripts/environment torch` built. In the first case a worker of a mirrored training raises after some steps, while the
other waits for it in a collective; in the second its script imports a module that is not there, while the other waits
for it at the rendezvous. Times are measured from the end of the failed process, from the journal; the time that its
interpreter needed to exit after the failed line is not included, and printed beside it. The peer is the goal in
seconds: a ratio above 1 misses it.
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
from drumline.store.folder import RunFolder
from drumline.store.journal import read_journal

REPETITIONS = 5
GOALS = {"card": 0.5, "prompt": 1.5}
COMMAND = "python -m bench.failure"

FAILS = """
import os, time
def fails():
    with open("failed", "w") as file:
        file.write(str(time.clock_gettime(time.CLOCK_BOOTTIME)))
    return True
is_second = os.environ["DRUMLINE_INDEX"] == "1"
"""
LACKS = """
if is_second and fails():
    import a_module_that_is_not_there
"""
MIRRORED = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
@tf.function
def step():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
"""
DDP = """
import torch
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
def step():
    model(torch.ones(8, 100)).square().mean().backward()
"""
STEPS = """
for number in range(1, 10000):
    step()
    print("step", number, "loss 0.1", flush=True)
    if is_second and number == 20 and fails():
        raise ValueError("bad row")
"""
TRAININGS = {"TensorFlow": ("tensorflow", MIRRORED), "torch": ("torch", DDP)}
CASES = {"a worker raises": "{training}{steps}", "a worker lacks a module": "{lacks}{training}{steps}"}


def main() -> None:
    for name, (framework, training) in TRAININGS.items():
        for case, form in CASES.items():
            script = FAILS + form.format(lacks=LACKS, training=training, steps=STEPS)
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
                found = measure(Path(scratch), framework, script)
            own = statistics.median(each["end"] for each in found)
            print(f"\n{name}, {case}: seconds from the end of its process, {own:.2f} after the line that failed")
            for what, goal in GOALS.items():
                seconds = statistics.median(each[what] for each in found)
                most = max(each[what] for each in found)
                print(f"  to the {what:<8}{seconds:>6.2f}  (at most {most:.2f}; goal {goal:g})")
                note(Figure(f"{name}, {case}: to the {what}", seconds, goal, "goal", 1.0, COMMAND))


def measure(folder: Path, framework: str, script: str) -> list[dict[str, float]]:
    """Repeat the failing run; return the seconds from each failure to the card and to the prompt."""
    (folder / "train.py").write_text(script)
    (folder / "drumline.yml").write_text(
        f"project: bench\nframework: {framework}\nrun: python train.py\nroles: {{worker: 2}}\n"
    )
    home = folder / "home"
    env = {name: value for name, value in os.environ.items() if not name.startswith("DRUMLINE_")}
    env |= {"DRUMLINE_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
    drumline = [str(environment(framework) / "bin" / "python"), "-m", "drumline"]
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
            ended = _first_end(home / "runs" / str(number) / "events.jsonl")
            failed = float((folder / "failed").read_text())
            if card is None:
                raise RuntimeError("no card was shown")
            found.append({"card": card - ended, "prompt": prompt - ended, "end": ended - failed})
    finally:
        subprocess.run([*drumline, "warm", "stop"], cwd=folder, env=env, check=False, stdout=subprocess.DEVNULL)
    return found


def _first_end(journal: Path) -> float:
    """Return when the first process ended."""
    run = RunFolder(journal.parent)
    events = (record.event for record in read_journal(run.journal_file, run.plan()))
    return min(event.at_seconds for event in events if isinstance(event, ReplicaExited))


if __name__ == "__main__":
    main()
