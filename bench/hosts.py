"""Launching on several hosts, side by side: a shell that loops over `ssh`, one host after the other or all with `&`.

Run as `scripts/hosts/run 10 .venv/bin/python -m bench.hosts [NAME...]` from the checkout: real sshds in namespaces of
this machine, so that all of them share its cores. Every launcher copies the project, starts one
replica on each host with its TF_CONFIG, and writes its log on this machine. Figures are medians of interleaved
repetitions, as ratios to the loop with `&`.
"""

from __future__ import annotations

import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.figures import Figure, note

UP = "import time; print(time.monotonic(), flush=True)\n"  # the clock is the same in every namespace
PRINT = "for i in range(100_000): print('line', i, 'of a log that a training script might well write')\n"
SECONDS = 300.0

Launcher = Callable[[Path, Sequence[str]], Sequence[str]]  # folder of the project, hosts -> command


def main() -> None:
    config = os.environ.get("DRUMLINE_SSH_CONFIG")
    if not config:
        sys.exit("no hosts: scripts/hosts/run 10 .venv/bin/python -m bench.hosts")
    hosts = re.findall(r"^Host (h\d+)$", Path(config).read_text(), re.MULTILINE)
    for name in sys.argv[1:] or ("up", "lines"):
        {"up": up, "lines": lines}[name](hosts)


def up(hosts: Sequence[str]) -> None:
    """Measure the time until the last replica runs, and until the command ends."""
    for number in sorted({min(3, len(hosts)), len(hosts)}):

        def measure(launcher: Launcher, number: int = number) -> tuple[float, ...]:
            began, logs, ended = launch(launcher, hosts[:number], UP)
            return max(float(log.split()[-1]) for log in logs) - began, ended - began

        table(f"one tiny replica on each of {number} hosts", ("all up", "over"), measure, repetitions=5)


def lines(hosts: Sequence[str]) -> None:
    """Measure the time until 100,000 lines of each of three hosts are in files of this machine."""

    def measure(launcher: Launcher) -> tuple[float, ...]:
        began, logs, ended = launch(launcher, hosts[:3], PRINT)
        if any(log.count("\n") != 100_000 for log in logs):
            raise AssertionError("lines are missing")
        return (ended - began,)

    table("100,000 lines from each of 3 hosts", ("over",), measure, repetitions=3)


def launch(launcher: Launcher, hosts: Sequence[str], script: str) -> tuple[float, list[str], float]:
    """Return when it began, the log of each replica, and when it ended."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        project = Path(scratch, "project")
        project.mkdir()
        (project / "train.py").write_text(script)
        command = launcher(project, hosts)
        env = {**os.environ, "DRUMLINE_HOME": str(Path(scratch, "home"))}
        began = time.monotonic()
        subprocess.run(command, cwd=project, env=env, check=True, stdout=subprocess.DEVNULL, timeout=SECONDS)
        ended = time.monotonic()
        logs = sorted(Path(scratch).glob("home/runs/1/attempts/0/worker.*/log")) or sorted(project.glob("*.log"))
        return began, [log.read_text() for log in logs], ended


def by_drumline(project: Path, hosts: Sequence[str]) -> Sequence[str]:
    """Write the spec, and return the command."""
    (project / "drumline.yml").write_text(
        f"project: bench\nframework: tensorflow\nwarm: false\nrun: python3 train.py\nroles: {{worker: {len(hosts)}}}\n"
    )
    return [sys.executable, "-m", "drumline", "train", "--hosts", ",".join(hosts)]


def by_loop(_: Path, hosts: Sequence[str]) -> Sequence[str]:
    """Return a loop that copies and starts one host after the other; the replicas run side by side."""
    return ["sh", "-c", _script(hosts, together=False)]


def by_loop_together(_: Path, hosts: Sequence[str]) -> Sequence[str]:
    """Return the same loop with all hosts at once."""
    return ["sh", "-c", _script(hosts, together=True)]


def _script(hosts: Sequence[str], *, together: bool) -> str:
    ssh = f"ssh -F {shlex.quote(os.environ['DRUMLINE_SSH_CONFIG'])}"
    folder = f"bench-{time.monotonic_ns()}"
    steps = []
    for index, host in enumerate(hosts):
        variable = f"TF_CONFIG={shlex.quote(str(index))}"  # a real one would be made by hand, before
        carry = f"tar c train.py | {ssh} {host} 'mkdir {folder} && tar x -C {folder}'"
        start = (
            f"{ssh} {host} {shlex.quote(f'cd {folder} && {variable} exec python3 train.py')} < /dev/null > {host}.log"
        )
        steps.append(f"{{ {carry} && {start}; }} &" if together else f"{carry}; {start} &")
    return "\n".join([*steps, "wait"])


LAUNCHERS: dict[str, Launcher] = {"ssh loop": by_loop, "ssh loop &": by_loop_together, "drumline": by_drumline}


def table(
    title: str, columns: Sequence[str], measure: Callable[[Launcher], tuple[float, ...]], *, repetitions: int
) -> None:
    """Measure all launchers in turn, after a first time that does not count, and print medians as ratios."""
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in LAUNCHERS}
    for repetition in range(repetitions + 1):
        for name, launcher in LAUNCHERS.items():
            found = measure(launcher)
            if repetition:
                times[name].append(found)
    medians = {
        name: [statistics.median(each) for each in zip(*several, strict=True)] for name, several in times.items()
    }
    print(f"\n{title}")
    print(f"  {'':12}" + "".join(f"{column:>10}{'ratio':>8}" for column in columns))
    for column, ours, theirs in zip(columns, medians["drumline"], medians["ssh loop &"], strict=True):
        note(Figure(f"{title}, {column}", ours, theirs, "ssh in a loop with &", None, "python -m bench.hosts"))
    for name, found_here in medians.items():
        cells = zip(found_here, medians["ssh loop &"], strict=True)
        print(f"  {name:12}" + "".join(f"{own:>9.2f}s{own / floor:>8.2f}" for own, floor in cells), flush=True)


if __name__ == "__main__":
    main()
