"""The time from the kill of a worker to the next step of all workers: with drumline, and with alternatives.

Run as `python -m bench.recovery [tensorflow] [torch]` from the checkout, with the environments of `scripts/environment
tensorflow torch` built. Two workers train; one is killed with KILL after the first steps. It is compared,
for TensorFlow, with a cold start of the same workers by hand; for torch, with torchrun restarting the same script. The
numbers are medians of interleaved repetitions; below them are the parts of drumline's time, from the run's journal.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, note
from bench.hand import ROOT, environment, typed
from bench.start import TENSORFLOW, TORCH
from drumline.run.entry import Entry
from drumline.run.event import AttemptPlaced, ReplicaExited, ReplicaStarted
from drumline.store.folder import RunFolder
from drumline.store.journal import read_journal

REPETITIONS = 5
WORKERS = 2
PATIENCE_SECONDS = 40
CHANCES = 2

# After the first step of `bench.start`: record it, and continue to train.
TENSORFLOW_ON = "\nwhile True: float(step(tf.constant(x), tf.constant(y)))\n"
TORCH_ON = """
while True:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.arange(32) % 10).backward()
    optimizer.step()
"""
MARK = """
mark = os.path.join({marks!r}, str(os.getpid()))
with open(mark + ".new", "w") as file: file.write(repr(time.monotonic()))
os.rename(mark + ".new", mark)
"""


class Case(NamedTuple):
    """A framework, and the alternative to which its recovery is compared."""

    framework: str
    script: str
    peer: str
    goal: float


CASES = {
    "tensorflow": Case("tensorflow", TENSORFLOW + MARK + TENSORFLOW_ON, "a cold start by hand", 0.25),
    "torch": Case("torch", TORCH + MARK + TORCH_ON, "torchrun restarts", 0.1),
}
PARTS = ("to notice", "to end the others", "to start anew", "to the first step")


def main() -> None:
    for name in sys.argv[1:] or list(CASES):
        measure(name, CASES[name])


def measure(name: str, case: Case) -> None:
    peer, ours, parts = [], [], []
    for _ in range(REPETITIONS):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            bench = Bench(Path(scratch), case)
            peer.append(bench.torchrun() if case.framework == "torch" else bench.by_hand())
            seconds, found = bench.drumline()
            ours.append(seconds)
            parts.append(found)
    came_back = [seconds for seconds in peer if not math.isnan(seconds)]
    theirs, mine = statistics.median(came_back) if came_back else math.nan, statistics.median(ours)
    print(f"\n{name}: from the death of one of two workers to the first new step on both")
    print(f"{'':<24}{'seconds':>9}{'ratio':>8}{'goal':>7}")
    print(f"{case.peer:<24}{theirs:>9.2f}{1:>8.2f}")
    print(f"{'drumline':<24}{mine:>9.2f}{mine / theirs:>8.2f}{case.goal:>7}")
    title, command = f"{name}: from a worker's death to the first new step", f"python -m bench.recovery {name}"
    if came_back:
        note(Figure(title, mine, theirs, case.peer, case.goal, command))
    for part, values in zip(PARTS, zip(*parts, strict=True), strict=True):
        print(f"  {part:<22}{statistics.median(values):>9.2f}")


class Bench:
    """A folder with a script, and the processes that are started there."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self.case = folder, case
        self.python = environment(case.framework) / "bin" / "python"
        self.marks = folder / "marks"
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DRUMLINE_")},
            "DRUMLINE_HOME": str(folder / "home"),
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONUNBUFFERED": "1",
        }
        (folder / "train.py").write_text(case.script.replace("{marks!r}", repr(str(self.marks))))
        line = f"framework: {case.framework}\nrun: python train.py\nroles: {{worker: {WORKERS}}}\n"
        (folder / "drumline.yml").write_text(f"project: bench\n{line}restart: 1\n")

    def by_hand(self) -> float:
        """Start all workers without drumline; return the seconds to the first step of all."""
        began = self._clear()
        words = typed(self.case.framework, WORKERS)
        processes = [self._start([str(self.python), "train.py"], each) for each in words]
        seconds = max(self._first_steps(set()).values()) - began
        _end(processes)
        return seconds

    def torchrun(self) -> float:
        """Kill a rank of torchrun, which restarts all ranks; repeat it if torchrun does not succeed in time.

        The new ranks find addresses of the previous ones in its store, connect to them, and usually fail again
        (`Gloo connectFullMesh failed … Connection refused`): so it may restart more than once.
        """
        words = ["--standalone", f"--nproc-per-node={WORKERS}", "--max-restarts=9", "train.py"]
        for _ in range(CHANCES):
            self._clear()
            process = self._start([str(self.python.with_name("torchrun")), *words], {})
            try:
                return self._kill_one(max)[0]
            except TimeoutError:
                print(f"torchrun did not come back within {PATIENCE_SECONDS} s")
            finally:
                process.send_signal(signal.SIGTERM)  # its ranks end with it
                process.wait()
        return math.nan

    def drumline(self) -> tuple[float, tuple[float, ...]]:
        """Kill a worker of a run with a restart budget; return the seconds, and the parts of that time."""
        self._clear()
        _end([self._start([str(self.python), "-m", "drumline", "train", "-d"], {})], kill=False)
        seconds, killed = self._kill_one(self._second_worker)
        journal = self._journal()
        ends = [record.event.at_seconds for record in journal if isinstance(record.event, ReplicaExited)]
        placed = [record.since_boot for record in journal if isinstance(record.event, AttemptPlaced)]
        started = [record.since_boot for record in journal if isinstance(record.event, ReplicaStarted)]
        moments = (killed, min(ends), placed[-1], started[-1], killed + seconds)
        for words in (["kill", "--force", "1"], ["warm", "stop"]):
            _end([self._start([str(self.python), "-m", "drumline", *words], {})], kill=False)
        return seconds, tuple(after - before for before, after in pairwise(moments))

    def _journal(self) -> list[Entry]:
        run = RunFolder(self.folder / "home" / "runs" / "1")
        return read_journal(run.journal_file, run.plan())

    def _second_worker(self, _: dict[int, float]) -> int:
        events = (record.event for record in self._journal())
        return next(each.pid or 0 for each in events if isinstance(each, ReplicaStarted) and each.replica.index == 1)

    def _kill_one(self, choose: Callable[[dict[int, float]], int]) -> tuple[float, float]:
        """Kill a worker that has taken a step; return the seconds to the next step of all, and the time of the kill."""
        before = self._first_steps(set())
        time.sleep(0.5)  # in the middle of the training
        killed = time.monotonic()
        os.kill(choose(before), signal.SIGKILL)
        return max(self._first_steps(set(before)).values()) - killed, killed

    def _clear(self) -> float:
        shutil.rmtree(self.marks, ignore_errors=True)
        self.marks.mkdir()
        return time.monotonic()

    def _first_steps(self, known: set[int]) -> dict[int, float]:
        """Wait until all workers except known ones have taken a step; return the time of each first step."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            names = [
                each.name for each in self.marks.iterdir() if each.name.isdecimal() and int(each.name) not in known
            ]
            if len(names) >= WORKERS:
                return {int(name): float((self.marks / name).read_text()) for name in names}
            if time.monotonic() > deadline:
                raise TimeoutError(f"the workers did not come up: see {self.folder}")
            time.sleep(0.005)

    def _start(self, argv: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        return subprocess.Popen(argv, cwd=self.folder, env={**self.env, **env}, stdout=quiet, stderr=quiet)


def _end(processes: list[subprocess.Popen[bytes]], *, kill: bool = True) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            if kill:
                process.kill()
        process.wait()


if __name__ == "__main__":
    main()
