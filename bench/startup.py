"""The time of short commands, compared with a bare interpreter.

Run as `python -m bench.startup [REPETITIONS]` from the checkout. Commands take turns, and the least of all turns
counts, so that a busy machine blurs the ratios little.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.compiled import compile_drumline
from bench.figures import Figure, note
from bench.plan import SPEC

DRUMLINE = [sys.executable, "-m", "drumline"]
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "drumline --version": [*DRUMLINE, "--version"],
    "drumline --help": [*DRUMLINE, "--help"],
    "drumline status": [*DRUMLINE, "status"],
    "drumline check": [*DRUMLINE, "check"],
    "drumline render": [*DRUMLINE, "render"],
}


def main() -> None:
    compile_drumline()
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "drumline.yml").write_text(SPEC % 3)
        environment = {**os.environ, "DRUMLINE_HOME": f"{folder}/home"}
        turns = [
            {name: measure(argv, folder, environment) for name, argv in COMMANDS.items()} for _ in range(repetitions)
        ]
    least = {name: min(turn[name] for turn in turns) for name in COMMANDS}
    bare = least["python -c pass"]
    print(f"{'':<20}{'ms':>8}{'ratio':>8}    least of {repetitions}")
    for name, seconds in least.items():
        print(f"{name:<20}{seconds * 1000:8.1f}{seconds / bare:8.1f}")
        if seconds > bare:
            title, command = f"`{name}`", "python -m bench.startup"
            note(Figure(title, seconds * 1000, bare * 1000, "python -c pass", None, command, "ms"))


def measure(argv: list[str], folder: str, environment: dict[str, str]) -> float:
    before = time.perf_counter()
    subprocess.run(argv, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - before


if __name__ == "__main__":
    main()
