"""The speed of training: workers launched by drumline, workers launched by hand with TF_CONFIG only, and one process.

Run as `python -m bench.training [cnn] [mlp] [torch]` from the checkout, with the environments of `scripts/environment
tensorflow torch` built. Each is the same script with the same 256 examples a step, shared among the workers; what is
shown are examples a second, medians of blocks of steps from interleaved repetitions, and drumline's share of what was
reached by hand. A single worker is a process with all cores both ways, and the difference is smaller than the changes
of the machine's speed within a minute: so the two train at the same time and take turns, block by block. With the same
script and environment, one process may stay a tenth faster than the next, for unknown reasons: so many pairs are
started.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, note
from bench.hand import ROOT, environment, typed

REPETITIONS, SECONDS = 3, 3.0
PAIRS, SECONDS_OF_TURNS = 16, 6.0
WORKERS = (1, 2, 4)
EXAMPLES = 5 * 256  # in a block
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
        bench.drumline(1, {}).blocks()  # makes the warm process, while nothing else runs
        both = [(by_hand, bench.by_hand), (drumline, bench.drumline)]
        for repetition in range(PAIRS):
            order = both[:: 1 if repetition % 2 else -1]  # each is first in half of the pairs
            pair = [(found, way(1, turns)) for (found, way), turns in zip(order, bench.turns(), strict=True)]
            for found, gang in pair:
                found[1].extend(gang.blocks())
        for repetition in range(REPETITIONS):
            for workers in WORKERS[1:]:
                for found, way in both[:: 1 if repetition % 2 else -1]:
                    found[workers].extend(way(workers, {}).blocks())
        bench.close()
    alone = _pace(by_hand[1])
    print(f"\n{name}: examples a second, and as a ratio to one process with all cores; goal: {GOAL} of by hand")
    print(f"{'workers':<9}{'by hand':>9}{'ratio':>7}{'drumline':>11}{'ratio':>7}{'drumline / by hand':>21}")
    for workers in WORKERS:
        hand, ours = _pace(by_hand[workers]), _pace(drumline[workers])
        print(f"{workers:<9}{hand:>9.0f}{hand / alone:>7.2f}{ours:>11.0f}{ours / alone:>7.2f}{ours / hand:>21.2f}")
        title, command = f"{name}: training, {workers} worker{'s' * (workers > 1)}", f"python -m bench.training {name}"
        note(Figure(title, ours, hand, "by hand", GOAL, command, "examples/s", at_least=True))


def _pace(blocks: list[float]) -> float:
    """Return the examples per second."""
    return EXAMPLES / statistics.median(blocks)


class Gang(NamedTuple):
    """Processes that train together, and the file to which one of them writes the result."""

    processes: list[subprocess.Popen[bytes]]
    result: Path

    def blocks(self) -> list[float]:
        """Wait for the end, and return the seconds that each block of steps took."""
        codes = [process.wait() for process in self.processes]
        if any(codes):
            raise SystemExit(f"a worker failed: exit codes {codes}")
        found: list[float] = json.loads(self.result.read_text())
        self.result.unlink()
        return found


class Bench:
    """A folder in which a script is run both ways."""

    def __init__(self, folder: Path, name: str, case: Case) -> None:
        self.folder, self.name, self.case = folder, name, case
        self.pipes: list[int] = []
        self.python = environment(case.framework) / "bin" / "python"
        self.env = {
            **{each: value for each, value in os.environ.items() if not each.startswith("DRUMLINE_")},
            "DRUMLINE_HOME": str(folder / "home"),
            "PYTHONPATH": str(ROOT / "src"),
        }

    def by_hand(self, workers: int, turns: dict[str, str]) -> Gang:
        """Start one process per worker, with the variables that it needs."""
        result = self.folder / "by-hand"
        words = self._words(result, turns)
        return Gang([self._start(words, {**each, **turns}) for each in typed(self.case.framework, workers)], result)

    def drumline(self, workers: int, turns: dict[str, str]) -> Gang:
        """Start `drumline train`."""
        result, spec = self.folder / "drumline", self.folder / "drumline.yml"
        command = " ".join(["python", *self._words(result, turns)])
        spec.write_text(
            f"project: bench\nframework: {self.case.framework}\nrun: {command}\nroles: {{worker: {workers}}}\n"
            f"env: {json.dumps(turns)}\n"
        )
        return Gang([self._start(["-m", "drumline", "train", "-f", str(spec)], {})], result)

    def turns(self) -> list[dict[str, str]]:
        """Return the variables of two processes that take turns; the first one begins."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        first, second = folder / "first", folder / "second"
        os.mkfifo(first)
        os.mkfifo(second)
        self.pipes.append(os.open(first, os.O_RDWR))  # a pipe loses its content when no process has it open
        os.write(self.pipes[-1], b"x")
        return [{"BENCH_TURNS": f"{first}:{second}"}, {"BENCH_TURNS": f"{second}:{first}"}]

    def close(self) -> None:
        """Close the pipes, and stop the warm process."""
        for pipe in self.pipes:
            os.close(pipe)
        self._start(["-m", "drumline", "warm", "stop"], {}).wait()

    def _words(self, result: Path, turns: dict[str, str]) -> list[str]:
        seconds = SECONDS_OF_TURNS if turns else SECONDS
        return [str(ROOT / "bench" / "scripts" / self.case.script), self.name, str(seconds), str(result)]

    def _start(self, words: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        argv = [str(self.python), *words]
        return subprocess.Popen(argv, cwd=self.folder, env={**self.env, **env}, stdout=quiet, stderr=quiet)


if __name__ == "__main__":
    main()
