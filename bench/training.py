"""How fast a line trains: launched by drumline, launched by hand with nothing but TF_CONFIG, and as one process.

Run as `python -m bench.training [cnn] [mlp] [torch]` from the checkout, with the environments of `scripts/environment
tensorflow torch` built. Each is the same script with the same 256 examples a step, shared among the workers; what is
shown are examples a second, medians of interleaved repetitions, and drumline's share of what was reached by hand.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, note
from bench.hand import ROOT, environment, typed

REPETITIONS = 3
SECONDS = 3.0
WORKERS = (1, 2, 4)
GOAL = 0.98


class Case(NamedTuple):
    """A framework and the script that trains with it."""

    framework: str
    script: str


CASES = {
    "cnn": Case("tensorflow", "mirrored.py"),
    "mlp": Case("tensorflow", "mirrored.py"),
    "torch": Case("torch", "ddp.py"),
}


def main() -> None:
    for name in sys.argv[1:] or list(CASES):
        measure(name, CASES[name])


def measure(name: str, case: Case) -> None:
    by_hand: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    drumline: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        bench = Bench(Path(scratch), name, case)
        for repetition in range(REPETITIONS):
            for workers in WORKERS:
                ways = [(by_hand, bench.by_hand), (drumline, bench.drumline)]
                for found, way in ways[:: 1 if repetition % 2 else -1]:  # neither is always the one that comes second
                    found[workers].append(way(workers))
        bench.close()
    alone = statistics.median(by_hand[1])
    print(f"\n{name}: examples a second, and as a ratio to one process with all cores; goal: {GOAL} of by hand")
    print(f"{'workers':<9}{'by hand':>9}{'ratio':>7}{'drumline':>11}{'ratio':>7}{'drumline / by hand':>21}")
    for workers in WORKERS:
        hand, ours = statistics.median(by_hand[workers]), statistics.median(drumline[workers])
        print(f"{workers:<9}{hand:>9.0f}{hand / alone:>7.2f}{ours:>11.0f}{ours / alone:>7.2f}{ours / hand:>21.2f}")
        title, command = f"{name}: training, {workers} worker{'s' * (workers > 1)}", f"python -m bench.training {name}"
        note(Figure(title, ours, hand, "by hand", GOAL, command, "examples/s", at_least=True))


class Bench:
    """A folder in which a script is run both ways."""

    def __init__(self, folder: Path, name: str, case: Case) -> None:
        self.folder, self.case = folder, case
        self.python = environment(case.framework) / "bin" / "python"
        self.result = folder / "result"
        self.words = [str(ROOT / "bench" / "scripts" / case.script), name, str(SECONDS), str(self.result)]
        self.env = {
            **{each: value for each, value in os.environ.items() if not each.startswith("DRUMLINE_")},
            "DRUMLINE_HOME": str(folder / "home"),
            "PYTHONPATH": str(ROOT / "src"),
        }

    def by_hand(self, workers: int) -> float:
        """As people do: one process each, with the variables that it needs."""
        processes = [self._start([*self.words], each) for each in typed(self.case.framework, workers)]
        return self._wait(processes)

    def drumline(self, workers: int) -> float:
        """With one command."""
        spec = self.folder / "drumline.yml"
        command = " ".join(["python", *self.words])
        spec.write_text(
            f"project: bench\nframework: {self.case.framework}\nrun: {command}\nroles: {{worker: {workers}}}\n"
        )
        return self._wait([self._start(["-m", "drumline", "train", "-f", str(spec)], {})])

    def close(self) -> None:
        """Leave nothing warm."""
        self._start(["-m", "drumline", "warm", "stop"], {}).wait()

    def _start(self, words: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        argv = [str(self.python), *words]
        return subprocess.Popen(argv, cwd=self.folder, env={**self.env, **env}, stdout=quiet, stderr=quiet)

    def _wait(self, processes: list[subprocess.Popen[bytes]]) -> float:
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit(f"a worker failed: exit codes {codes}")
        reached = float(self.result.read_text())
        self.result.unlink()
        return reached


if __name__ == "__main__":
    main()
