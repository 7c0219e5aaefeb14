"""`python -m fuzz.kills [--runs N] [--seed N]`: real runs, with signals to any process at any time.

A seed determines the gang, and the target, signal and time of each fault; the rest depends on timing.
In every case, a new supervisor continues the run to its end, all commands that show it work, and no process is left.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from drumline.engine.local.warm.pool import list_warm_processes
from drumline.run.event import ReplicaExited, ReplicaStarted, ResumeRequested
from drumline.run.fold import new_run
from drumline.run.state import Phase
from drumline.run.traces import GROUP
from scaffold.decisions import step
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

PATIENCE_SECONDS = 600.0
SIGNALS = ("KILL", "KILL", "KILL", "TERM", "INT", "HUP", "QUIT", "SEGV", "ABRT", "USR1", "STOP")
# Commands of replicas: all of them end sooner or later by themselves, and some ignore SIGTERM.
SCRIPTS = (
    "sleep 0.{0}",
    "sleep 0.{0}; exit 3",
    "trap '' TERM; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.{0}; done",
    "setsid sleep 300 & sleep 300 & sleep 0.{0}",
    "trap 'sleep 0.2; exit 7' TERM; sleep 0.{0} & wait; sleep 1",
    "(trap '' TERM HUP INT; setsid sh -c 'sleep 300; sleep 1') & exec sleep 0.{0}",
    "echo step 1 loss 0.5; kill -9 $$",
    "exec sleep 300",
)
WARM = (
    "import os, sys, time\ntime.sleep(float(sys.argv[1]))\nif os.fork(): sys.exit(int(sys.argv[2]))\ntime.sleep(300)\n"
)
GANGS = ("worker: 1", "worker: 3", "chief: 1, worker: 2", "chief: 1, worker: 1, ps: 2", "worker: 2, evaluator: 1")
TARGETS = ("replica", "replica", "keeper", "supervisor", "supervisor", "command", "warm", "any", "all")


# All commands that show a run, in one process; their exit codes are printed last.
SHOW = """
import sys
from drumline.cli import run
def exit_code(*words):
    try:
        return run(words)
    except SystemExit as left:
        return left.code
id = sys.argv[1]
commands = (("status", id), ("status", id, "-o", "json"), ("logs", id), ("events", id), ("wait", id))
codes = [exit_code(*words) for words in commands]
print()
print(codes)
"""


class Fault(NamedTuple):
    """A signal to a target, some time after the previous one."""

    after_seconds: float
    target: str
    signal: str


def make_spec(rng: Random) -> str:
    """Return a spec with a random gang."""
    roles = rng.choice(GANGS).split(", ")
    is_warm = rng.random() < 0.15
    blocks = []
    for role in roles:
        name, _, number = role.partition(": ")
        script = rng.choice(SCRIPTS).format(rng.choice((1, 3, 9)))
        if is_warm:
            script = f"{sys.executable} warm.py 0.{rng.randrange(9)} {rng.choice((0, 0, 3))}"
        blocks.append(f"  {name}: {{replicas: {number}, run: {json.dumps(script)}}}")
    more = [f"restart: {{crash: {rng.randrange(3)}, lost: {rng.randrange(3)}}}"]
    if rng.random() < 0.3:
        more.append("resources: {memory: 50MB}")
    if is_warm:
        more.append("warm: true")
    return "\n".join(("roles:", *blocks, f"timeouts: {{grace: {rng.choice(('0.1', '0.5', '2'))}}}", *more))


def make_faults(rng: Random) -> list[Fault]:
    """Return random faults."""
    return [
        Fault(rng.choice((0.0, 0.02, 0.1, 0.3)) * rng.random(), rng.choice(TARGETS), rng.choice(SIGNALS))
        for _ in range(rng.randrange(6))
    ]


class Trial:
    """One run, from its start until no process of it is left."""

    def __init__(self, workspace: Workspace, seed: int) -> None:
        self.rng = Random(f"kills {seed}")
        self.workspace = workspace
        self.faults = make_faults(self.rng)
        self.spec = make_spec(self.rng)
        self.stopped: list[int] = []
        self.injected: list[str] = []
        self.is_detached = False

    def go(self) -> str:
        """Start the run, inject the faults, wait for its end and check it; return its final phase."""
        self.workspace.write("warm.py", WARM)
        self.workspace.write_spec(self.spec)
        self.is_detached = self.rng.random() < 0.4
        words = ("train", "-d") if self.is_detached else ("train",)
        with (self.workspace.path / "out").open("w") as out:
            command = self.workspace.command(*words, stdout=out)
            try:
                self.wait_for(self.rng.choice(("nothing", "folder", "journal", "replica", "replica")), command)
                for fault in self.faults:
                    time.sleep(fault.after_seconds)
                    self.inject(fault, command)
            finally:
                for pid in self.stopped:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                wait_until(
                    lambda: any(self.is_planned(run) for run in self.workspace.runs()) or command.poll() is not None
                )
                if self.is_detached:
                    wait_until(lambda: command.poll() is not None)
                runs = self.workspace.runs()
                for run in runs:
                    self.end(run)
                _, err = command.communicate(timeout=PATIENCE_SECONDS)
        # A command that is interrupted before drumline's code runs prints Python's traceback.
        is_early = err.endswith("KeyboardInterrupt\n") and "drumline/__main__.py" not in err
        assert "Traceback" not in err or is_early, err
        for run in [run for run in runs if not self.is_planned(run)]:
            shutil.rmtree(run.path)  # without a plan it is no run, and no command shows it
            runs.remove(run)
        for run in runs:
            self.check(run, command.returncode)
        self.workspace.leave()
        return ", ".join(str(run.state.phase) for run in runs) or "nothing"

    @staticmethod
    def is_planned(run: Run) -> bool:
        """Return whether it is a run; a folder without a plan is none."""
        return run.folder.plan_file.exists()

    def wait_for(self, what: str, command: subprocess.Popen[str]) -> None:
        """Wait until the run has reached this point of its start, or the command has failed."""

        def is_reached() -> bool:
            runs = self.workspace.runs()
            if what == "folder":
                return bool(runs)
            if what == "journal":
                return any(run.folder.journal_file.exists() for run in runs)
            planned = [run for run in runs if self.is_planned(run)]
            return any(isinstance(event, ReplicaStarted) for run in planned for event in run.events)

        if what != "nothing":
            wait_until(lambda: is_reached() or command.poll() not in (None, 0))

    def inject(self, fault: Fault, command: subprocess.Popen[str]) -> None:
        """Send the signal to the target, if there is one."""
        number = getattr(signal, f"SIG{fault.signal}")
        for pid in self.find(fault.target, command):
            self.injected.append(f"{fault.signal} {fault.target} {pid}")
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                if fault.signal == "STOP":
                    self.stopped.append(pid)

    def find(self, target: str, command: subprocess.Popen[str]) -> list[int]:
        """Return the pids of a target: one at random, or all."""
        processes = sorted(self.workspace.processes())
        if target == "all":
            return processes
        runs = self.workspace.runs()
        found = processes
        if target == "command":
            found = [command.pid] if command.poll() is None else []
        elif target == "warm":
            found = [known.pid for known in list_warm_processes(self.workspace.home)] if "warm:" in self.spec else []
        elif target == "supervisor":
            found = [pid for run in runs if (pid := run.supervisor())]
        elif target in ("replica", "keeper"):
            with suppress(Exception):  # it does not exist yet
                run = runs[0]
                ids = [str(each.id) for each in run.folder.plan().replicas]
                traces = [run.trace(name, run.state.attempt) for name in ids]
                pids = [trace.pid if target == "replica" else trace.keeper for trace in traces]
                found = [pid for pid in pids if pid is not None and pid in processes]
        return [self.rng.choice(found)] if found else []

    def end(self, run: Run) -> None:
        """Bring the run to its end with random commands."""
        if not self.is_planned(run):
            return
        verbs = ["supervise", "kill", "kill --force", "wait"]
        for _ in range(20):
            if run.state.phase.is_final and run.supervisor() is None:
                return
            verb = self.rng.choice(verbs)
            command = self.workspace.command(*verb.split(), run.id)
            try:
                out, err = command.communicate(timeout=3.0 if verb == "wait" else PATIENCE_SECONDS)
                assert "Traceback" not in err, err
                assert command.returncode in (0, 1, 3), f"{verb}: {command.returncode} {out}{err}"
                assert command.returncode == 0 or verb in ("supervise", "wait"), (
                    f"{verb}: {command.returncode} {out}{err}"
                )
            except subprocess.TimeoutExpired:
                command.kill()
                command.communicate()
                assert verb == "wait", f"{verb} did not return"
                verbs = ["kill", "kill --force"]  # the run does not end by itself
        wait_until(lambda: run.supervisor() is None, PATIENCE_SECONDS)
        assert run.state.phase.is_final, f"the run stays {run.state.phase}"

    def check(self, run: Run, code: int) -> None:
        """Check the invariants of a run that has ended."""
        assert "Traceback" not in run.said(), run.said()
        state, plan, events = run.state, run.folder.plan(), run.events
        ended = {(e.replica, e.attempt, e.incarnation) for e in events if isinstance(e, ReplicaExited)}
        started = {(e.replica, e.attempt, e.incarnation) for e in events if isinstance(e, ReplicaStarted)}
        assert started <= ended, f"no exit was recorded of {started - ended}"
        for failure, spent in state.restarts.items():
            assert spent <= getattr(plan.restart, failure), f"{spent} restarts for {failure}"
        so_far = new_run(plan)
        for event in events:
            before, (so_far, _) = so_far, step(plan, so_far, event)
            if before.phase.is_final and not isinstance(event, ResumeRequested):
                assert so_far == before, f"{event} changed a run that was over"
        assert not list((run.path / "attempts").rglob(GROUP)) if (run.path / "attempts").exists() else True
        is_fine = state.phase is Phase.FINISHED
        if not self.faults and not self.is_detached:
            assert code == (0 if is_fine else 1), f"exit code {code} of a run that is {state.phase}"
        shown = self.workspace.command(run.id, program=(sys.executable, "-c", SHOW))
        out, err = shown.communicate(timeout=PATIENCE_SECONDS)
        assert (out.splitlines()[-1], err) == (f"[0, 0, 0, 0, {0 if is_fine else 1}]", f"run {run.id}: {state.phase}\n")


def try_one(seed: int) -> str:
    """Try one seed in a new workspace; return the final phase."""
    with TemporaryDirectory(prefix="kills-") as folder:
        workspace = Workspace(Path(folder) / "workspace")
        trial = Trial(workspace, seed)
        try:
            return trial.go()
        except BaseException:
            print(f"FOUND by `python -m fuzz.kills --runs 1 --seed {seed}`\n{trial.spec}\n{trial.injected}", flush=True)
            for run in workspace.runs():
                with suppress(OSError):
                    print(run.folder.journal_file.read_text(), run.said(), flush=True)
            raise
        finally:
            workspace.clear()


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz.kills")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for how long at most")
    parser.add_argument("--seed", type=int, default=int(time.time()) * 1000)
    given = parser.parse_args()
    wrong, done, deadline = 0, 0, time.monotonic() + given.seconds
    for seed in range(given.seed, given.seed + given.runs):
        if time.monotonic() > deadline:
            break
        began = time.monotonic()
        try:
            word = try_one(seed)
        except Exception:  # noqa: BLE001 - every exception is reported
            traceback.print_exc()
            word, wrong = "WRONG", wrong + 1
        done += 1
        print(f"{seed} {time.monotonic() - began:5.1f} s  {word}", flush=True)
    print(f"{done} runs from seed {given.seed}, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
