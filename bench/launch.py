"""Launching on one machine: a shell with `&` is the lower bound; honcho, torchrun and mpirun are the peers.

Run as `python -m bench.launch [NAME...]` from the checkout. Every launcher starts the same interpreter with the same
environment (PYTHONUNBUFFERED included). Figures are medians of interleaved repetitions, shown as ratios.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.compiled import compile_drumline
from bench.figures import Figure, note

PYTHON = sys.executable
DRUMLINE = str(Path(PYTHON).with_name("drumline"))  # called by name, as the peers
ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1"}

UP = """
import os, time
mark = os.path.join({folder!r}, str(os.getpid()))
moment = time.monotonic()
with open(mark + ".new", "w") as file: file.write(repr(moment))
os.rename(mark + ".new", mark)
while sum(name.isdecimal() for name in os.listdir({folder!r})) < 8: time.sleep(0.02)
"""  # no replica exits before all are up: honcho ends all when the first one exits
PRINT = "for i in range({lines}): print('line', i, 'of a log that a training script might well write')"
FAIL = """
import os, sys, time
folder = {folder!r}
mine = os.path.join(folder, "turn")
try:
    os.mkdir(mine); first = True
except FileExistsError:
    first = False
open(os.path.join(folder, f"pid-{{os.getpid()}}"), "w").close()
while len([name for name in os.listdir(folder) if name.startswith("pid-")]) < 4: time.sleep(0.01)
time.sleep(0.3)
if first:
    open(os.path.join(folder, "failed"), "w").write(repr(time.monotonic()))
    sys.exit(1)
time.sleep(1000)
"""

Launcher = Callable[[Path, Path, int], Sequence[str]]  # scratch folder, script, replicas -> command


class Goal(NamedTuple):
    """The name of a benchmark, its peer, and the largest accepted ratio."""

    name: str
    peer: str
    ratio: float


def main() -> None:
    compile_drumline()
    names = sys.argv[1:] or ["up", "lines", "fail", "many", "status", "weight"]
    for name in names:
        {"up": up, "lines": lines, "fail": fail, "many": many, "status": status, "weight": weight}[name]()


def up() -> None:
    """Measure the time from the command until all of eight replicas run."""

    def measure(_: str, launcher: Launcher) -> float:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            folder, marks = Path(scratch), Path(scratch, "marks")
            marks.mkdir()
            command = launcher(folder, _script(folder, UP.format(folder=str(marks))), 8)
            begin = time.monotonic()
            _run(command, folder)
            _wait_for_supervisor(folder)
            return max(float(mark.read_text()) for mark in marks.iterdir()) - begin

    title = "8 tiny replicas, until all are up"
    _table(title, measure, _launchers(), repetitions=25, goal=Goal("up", "honcho", 2.0))


def lines() -> None:
    """Measure four replicas that print 800,000 lines."""

    def to_disk(_: str, launcher: Launcher) -> float:
        return _timed(launcher, PRINT.format(lines=200_000), 4, to="log")

    def to_pipe(_: str, launcher: Launcher) -> float:
        return _timed(launcher, PRINT.format(lines=200_000), 4, to="pipe")

    detached = {**_launchers(), "drumline": _drumline_in_background}
    goal = Goal("lines", "shell", 1.2)
    _table("4 replicas, 800,000 lines, to disk", to_disk, detached, repetitions=3, goal=goal)
    goal = Goal("lines", "shell", 4.0)
    _table("4 replicas, 800,000 lines, prefixed, to a pipe", to_pipe, _launchers(), repetitions=3, goal=goal)


def fail() -> None:
    """Measure the time from the failure of one of four until all have ended, including the launcher."""
    alone: dict[str, list[float]] = {}

    def measure(name: str, launcher: Launcher) -> float:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            folder, marks = Path(scratch), Path(scratch, "marks")
            marks.mkdir()
            command = launcher(folder, _script(folder, FAIL.format(folder=str(marks))), 4)
            quiet = subprocess.DEVNULL
            with subprocess.Popen(command, cwd=folder, env=_environment(folder), stdout=quiet, stderr=quiet):
                while not (marks / "failed").exists() or not (marks / "failed").read_text():
                    time.sleep(0.001)
                _wait_gone([int(mark.name.removeprefix("pid-")) for mark in marks.glob("pid-*")])
                replicas_gone = time.monotonic()
            all_gone = time.monotonic()
            failed = float((marks / "failed").read_text())
            alone.setdefault(name, []).append(replicas_gone - failed)
            return all_gone - failed

    peers = {name: launcher for name, launcher in _launchers().items() if name != "shell"}
    goal = Goal("fail", "honcho", 0.3)
    _table("one of 4 fails, until all have ended", measure, peers, repetitions=9, floor="honcho", goal=goal)
    _print(
        "the same, until the replicas have ended",
        {name: statistics.median(each) for name, each in alone.items()},
        "honcho",
    )


def _wait_gone(pids: list[int]) -> None:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        select.select([descriptor], [], [], 60)
        os.close(descriptor)


def many() -> None:
    """Measure five hundred tiny replicas, from start to end."""

    def measure(_: str, launcher: Launcher) -> float:
        return _timed(launcher, "pass", 500, to="log")

    few = {name: launcher for name, launcher in _launchers().items() if name in ("shell", "drumline")}
    _table("500 tiny replicas, start to end", measure, few, repetitions=3, goal=Goal("many", "shell", 1.6))


def status() -> None:
    """Measure `drumline status` with 1,000 finished runs, compared with a bare interpreter."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        script = _script(folder, "pass")
        _run(_drumline(folder, script, 1), folder)
        _wait_for_supervisor(folder)
        runs = folder / "home" / "runs"
        for number in range(2, 1001):
            shutil.copytree(runs / "1", runs / str(number))
            plan = json.loads((runs / str(number) / "plan.json").read_text())
            (runs / str(number) / "plan.json").write_text(json.dumps({**plan, "run": str(number)}))
        (folder / "home" / "index.sqlite").unlink(missing_ok=True)
        _run([PYTHON, "-m", "drumline", "status"], folder)  # builds the index again
        commands = {
            "python -c pass": [PYTHON, "-c", "pass"],
            "drumline status": [PYTHON, "-m", "drumline", "status"],
            "drumline --help": [PYTHON, "-m", "drumline", "--help"],
        }
        best = {name: min(_seconds(command, folder) for _ in range(15)) for name, command in commands.items()}
        title = "1,000 finished runs in the store"
        _print(title, best, "python -c pass")
        _note(f"`status`, {title}", best, Goal("status", "python -c pass", 6.0), "drumline status")


def weight() -> None:
    """Measure the memory and CPU time of the supervisor while 32 replicas run."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        script = _script(folder, "import time; time.sleep(1000)")
        spec = _spec(folder, script, 32)
        run = subprocess.run(
            [PYTHON, "-m", "drumline", "train", "-d", str(spec)],
            cwd=folder,
            env=_environment(folder),
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        supervisor = _supervisor(folder / "home" / "runs" / run)
        try:
            time.sleep(2)
            before, began = _cpu_seconds(supervisor), time.monotonic()
            time.sleep(20)
            share = (_cpu_seconds(supervisor) - before) / (time.monotonic() - began)
            memory = int(
                next(
                    line
                    for line in Path(f"/proc/{supervisor}/status").read_text().splitlines()
                    if line.startswith("VmRSS")
                ).split()[1]
            )
            print(f"\nsupervisor of 32 replicas: {memory / 1024:.1f} MB resident, {share:.2%} of a core")
            command = "python -m bench.launch weight"
            note(Figure("supervisor of 32 replicas, memory", memory / 1024, 40, "goal", 1.0, command, "MB"))
            note(Figure("supervisor of 32 replicas, share of a core", share * 100, 0.5, "goal", 1.0, command, "%"))
        finally:
            _run([PYTHON, "-m", "drumline", "kill", "--force", run], folder)


def _launchers() -> dict[str, Launcher]:
    found: dict[str, Launcher] = {"shell": _shell, "drumline": _drumline}
    if honcho := shutil.which("honcho", path=f"{Path(PYTHON).parent}:{os.environ['PATH']}"):
        found["honcho"] = lambda folder, script, number: _honcho(honcho, folder, script, number)
    if torchrun := os.environ.get("TORCHRUN"):
        found["torchrun"] = lambda _, script, number: [
            torchrun,
            f"--nproc-per-node={number}",
            "--no-python",
            PYTHON,
            str(script),
        ]
    if mpirun := shutil.which("mpirun"):
        options = ["--allow-run-as-root", "--oversubscribe"]
        found["mpirun"] = lambda _, script, number: [mpirun, *options, "-n", str(number), PYTHON, str(script)]
    return found


def _shell(folder: Path, script: Path, number: int) -> Sequence[str]:
    starts = "\n".join(f"{PYTHON} {script} > {folder}/{index}.log 2>&1 &" for index in range(number))
    return ["sh", "-c", f"{starts}\nwait"]


def _drumline(folder: Path, script: Path, number: int) -> Sequence[str]:
    return [DRUMLINE, "train", str(_spec(folder, script, number))]


def _drumline_in_background(folder: Path, script: Path, number: int) -> Sequence[str]:
    spec = _spec(folder, script, number)
    return ["sh", "-c", f"{PYTHON} -m drumline wait $({PYTHON} -m drumline train -d {spec})"]


def _honcho(honcho: str, folder: Path, script: Path, number: int) -> Sequence[str]:
    (folder / "Procfile").write_text(f"worker: exec {PYTHON} {script}\n")
    return [honcho, "-f", str(folder / "Procfile"), "start", "-c", f"worker={number}"]


def _spec(folder: Path, script: Path, number: int) -> Path:
    spec = folder / "drumline.yml"
    spec.write_text(f"project: bench\nframework: plain\nrun: {PYTHON} {script}\nroles: {{worker: {number}}}\n")
    return spec


def _script(folder: Path, text: str) -> Path:
    script = folder / "replica.py"
    script.write_text(text)
    return script


def _environment(folder: Path) -> dict[str, str]:
    return {**ENVIRONMENT, "DRUMLINE_HOME": str(folder / "home")}


def _run(command: Sequence[str], folder: Path) -> None:
    subprocess.run(
        command, cwd=folder, env=_environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )


def _timed(launcher: Launcher, text: str, number: int, *, to: str) -> float:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        command = launcher(folder, _script(folder, text), number)
        begin = time.monotonic()
        if to == "log":
            with (folder / "all.log").open("wb") as log:
                subprocess.run(command, cwd=folder, env=_environment(folder), stdout=log, stderr=log, check=False)
        else:
            with subprocess.Popen(
                command, cwd=folder, env=_environment(folder), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as process:
                while process.stdout and os.read(process.stdout.fileno(), 1 << 20):
                    pass
        return time.monotonic() - begin


def _seconds(command: Sequence[str], folder: Path) -> float:
    begin = time.monotonic()
    _run(command, folder)
    return time.monotonic() - begin


def _supervisor(run: Path) -> int:
    """Return the pid of the process that holds the lock of a run."""
    lock = (run / "supervisor.lock").resolve()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and any(link.resolve() == lock for link in (entry / "fd").iterdir()):
                return int(entry.name)
        except OSError:
            continue
    raise SystemExit("the run has no supervisor")


def _wait_for_supervisor(folder: Path) -> None:
    """Wait until the supervisor has exited, so that it does not slow down the next measurement."""
    for lock in folder.glob("home/runs/*/supervisor.lock"):
        with lock.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _table(
    title: str,
    measure: Callable[[str, Launcher], float],
    launchers: dict[str, Launcher],
    *,
    repetitions: int,
    floor: str = "shell",
    goal: Goal | None = None,
) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in launchers}
    for _ in range(repetitions):
        for name, launcher in launchers.items():
            times[name].append(measure(name, launcher))
    medians = {name: statistics.median(values) for name, values in times.items()}
    _print(title, medians, floor)
    if goal:
        _note(title, medians, goal, "drumline")
    return medians


def _note(title: str, seconds: dict[str, float], goal: Goal, ours: str) -> None:
    if goal.peer in seconds:
        command = f"python -m bench.launch {goal.name}"
        note(Figure(title, seconds[ours], seconds[goal.peer], goal.peer, goal.ratio, command))


def _print(title: str, seconds: dict[str, float], floor: str) -> None:
    print(f"\n{title}")
    for name, value in sorted(seconds.items(), key=lambda item: item[1]):
        ratio = f"{value / seconds[floor]:8.2f}×" if floor in seconds else ""
        print(f"  {name:<16} {value:9.3f} s {ratio}")


if __name__ == "__main__":
    main()
