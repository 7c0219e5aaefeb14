"""The time from the command to the first training step of every worker: by hand, and with drumline, cold and warm.

Run as `python -m bench.start [CASE...]` from the checkout, with the environments of `scripts/environment tensorflow
torch` built; `CASES` has the names. By hand is one process per worker with nothing but the variables that it
needs; for torch it is torchrun. The command line's own start is included. `first` finds nothing warm, `following` finds
what the run before it left; the numbers are medians of interleaved repetitions. `one alone` is a single worker by hand:
if that takes nearly as long as all of them, workers do not slow each other down, and a single import saves little.
Memory is that of all processes when all have taken a step, shared pages counted once, keepers and the warm process
included.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, note
from bench.hand import ROOT, environment, typed
from drumline.engine.local.warm.pool import list_warm_processes
from drumline.runtime.keeper import descendants

REPETITIONS = 5

TENSORFLOW = """
import os, time
import numpy as np
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
class Net(tf.Module):
    def __init__(self):
        self.conv = tf.Variable(tf.random.stateless_normal((3, 3, 1, 16), (1, 1)) * 0.1)
        self.dense = tf.Variable(tf.random.stateless_normal((16 * 26 * 26, 10), (1, 2)) * 0.01)
    def __call__(self, x):
        x = tf.nn.relu(tf.nn.conv2d(x, self.conv, 1, "VALID"))
        return tf.reshape(x, (-1, 16 * 26 * 26)) @ self.dense
with strategy.scope():
    net = Net()
@tf.function
def step(x, y):
    def one(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, net(x)))
        for variable, gradient in zip(net.trainable_variables, tape.gradient(loss, net.trainable_variables)):
            gradient = tf.distribute.get_replica_context().all_reduce("MEAN", gradient)
            variable.assign_sub(0.1 * gradient)
        return loss
    return strategy.reduce("MEAN", strategy.run(one, (x, y)), axis=None)
x = np.random.default_rng(1).normal(size=(32, 28, 28, 1)).astype("float32")
y = np.arange(32) % 10
float(step(tf.constant(x), tf.constant(y)))
"""
TORCH = """
import os, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters())
loss = torch.nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.arange(32) % 10)
loss.backward()
optimizer.step()
"""
LEAVE = """
mark = os.path.join({marks!r}, str(os.getpid()))
with open(mark + ".new", "w") as file: file.write(repr(time.monotonic()))
os.rename(mark + ".new", mark)
while not os.path.exists({go!r}): time.sleep(0.01)
os._exit(0)
"""


class Case(NamedTuple):
    """A framework, the number of workers, and the goals."""

    framework: str
    workers: int
    goals: dict[str, float]
    imports: str = ""  # what the spec names in `warm.import`


CASES = {
    "tensorflow-2": Case("tensorflow", 2, {"first": 1.0, "following": 0.25}),
    "tensorflow-4": Case("tensorflow", 4, {"first": 1.0, "following": 0.2, "memory": 0.65}),
    "torch-2": Case("torch", 2, {"following": 0.1}),
    "torch-2-dynamo": Case("torch", 2, {"following": 0.1}, imports="torch._dynamo"),
}


class Figures(NamedTuple):
    """Seconds to the first step on all, and the memory of all processes at that time."""

    seconds: float
    memory_bytes: int


def main() -> None:
    for name in sys.argv[1:] or list(CASES):
        measure(name, CASES[name])


def measure(name: str, case: Case) -> None:
    python = environment(case.framework) / "bin" / "python"
    found: dict[str, list[Figures]] = {"by hand": [], "one alone": [], "cold": [], "first": [], "following": []}
    for _ in range(REPETITIONS):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            bench = Bench(Path(scratch), python, case)
            found["by hand"].append(bench.by_hand(case.workers))
            found["one alone"].append(bench.by_hand(1))
            found["cold"].append(bench.drumline("--no-warm"))
            found["first"].append(bench.drumline())
            bench.wait_ready()
            found["following"].append(bench.drumline())
            bench.close()
    hand = {field: median(found["by hand"], field) for field in Figures._fields}
    peer = "torchrun" if case.framework == "torch" else "by hand"
    print(f"\n{name}: from the command to the first step on all")
    print(f"{'':<12}{'seconds':>9}{'ratio':>8}{'goal':>7}{'memory':>11}{'ratio':>8}{'goal':>7}")
    for way, figures in found.items():
        seconds, memory = median(figures, "seconds"), median(figures, "memory_bytes")
        goal, memory_goal = case.goals.get(way), case.goals.get("memory") if way == "following" else None
        label = peer if way == "by hand" else way
        command, title = f"python -m bench.start {name}", f"{name}: first step on all, {way}"
        if goal:
            note(Figure(title, seconds, hand["seconds"], peer, goal, command))
        if memory_goal:
            used, by_hand = memory / 2**20, hand["memory_bytes"] / 2**20
            note(Figure(f"{name}: memory of all", used, by_hand, peer, memory_goal, command, "MiB"))
        print(
            f"{label:<12}{seconds:>9.2f}{seconds / hand['seconds']:>8.2f}{goal or '':>7}"
            f"{memory / 2**20:>7.0f} MiB{memory / hand['memory_bytes']:>8.2f}{memory_goal or '':>7}"
        )


def median(figures: Iterable[Figures], field: str) -> float:
    return float(statistics.median(getattr(each, field) for each in figures))


class Bench:
    """A folder with a script, and the processes that are started there."""

    def __init__(self, folder: Path, python: Path, case: Case) -> None:
        self.folder, self.python, self.case = folder, python, case
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DRUMLINE_")},
            "DRUMLINE_HOME": str(folder / "home"),
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONUNBUFFERED": "1",
        }
        self.marks, self.go = folder / "marks", folder / "go"
        body = TENSORFLOW if case.framework == "tensorflow" else TORCH
        (folder / "train.py").write_text(body + LEAVE.format(marks=str(self.marks), go=str(self.go)))
        (folder / "drumline.yml").write_text(
            f"project: bench\nframework: {case.framework}\nrun: python train.py\nroles: {{worker: {case.workers}}}\n"
            f"warm: {{import: [{case.imports}]}}\n"
        )

    def by_hand(self, workers: int) -> Figures:
        """Measure one process per worker with TF_CONFIG, or torchrun."""
        if self.case.framework == "torch":
            torchrun = [str(self.python.with_name("torchrun")), "--standalone", f"--nproc-per-node={workers}"]
            return self._measure(workers, lambda: [self._start([*torchrun, "train.py"], {})])
        words = typed(self.case.framework, workers)
        return self._measure(workers, lambda: [self._start([str(self.python), "train.py"], each) for each in words])

    def drumline(self, *words: str) -> Figures:
        """Measure `drumline train`."""
        command = [str(self.python), "-m", "drumline", "train", *words]
        return self._measure(self.case.workers, lambda: [self._start(command, {})])

    def wait_ready(self) -> None:
        """Wait until the warm process is ready; a first launch starts it without waiting for it."""
        while not any(known.ready for known in list_warm_processes(self.folder / "home")):
            time.sleep(0.01)

    def close(self) -> None:
        """Stop the warm process."""
        subprocess.run([self.python, "-m", "drumline", "warm", "stop"], env=self.env, check=True, capture_output=True)

    def _start(self, argv: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        return subprocess.Popen(argv, cwd=self.folder, env={**self.env, **env}, stdout=quiet, stderr=quiet)

    def _measure(self, workers: int, begin: Callable[[], list[subprocess.Popen[bytes]]]) -> Figures:
        shutil.rmtree(self.marks, ignore_errors=True)
        self.go.unlink(missing_ok=True)
        self.marks.mkdir()
        began = time.monotonic()
        processes = begin()
        while sum(each.name.isdecimal() for each in self.marks.iterdir()) < workers:
            if time.monotonic() - began > 300 or any(process.poll() for process in processes):
                raise SystemExit(f"the workers did not come up: see {self.folder}")
            time.sleep(0.01)
        seconds = max(float(mark.read_text()) for mark in self.marks.iterdir() if mark.name.isdecimal()) - began
        memory = sum(pss(pid) for pid in self._processes())
        self.go.touch()
        for process in processes:
            process.wait()
        return Figures(seconds, memory)

    def _processes(self) -> set[int]:
        """Return the replicas, their keepers or torchrun, the warm process, and drumline itself."""
        ours = {int(each.name) for each in Path("/proc").glob("[0-9]*") if self._is_ours(each)}
        warm = {known.pid for known in list_warm_processes(self.folder / "home")}
        return ours | warm | descendants(warm)

    def _is_ours(self, process: Path) -> bool:
        try:
            return str(self.folder).encode() in (process / "environ").read_bytes()
        except OSError:
            return False


def pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
