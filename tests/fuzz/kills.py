"""`python -m fuzz.kills [--runs N] [--seed N]`: real runs, anybody hurt at any moment, and what must hold then.

A seed decides on the line, on who is hurt, how and after how long; the machine decides on the rest. Whatever happened,
the run can be taken up again and ends, everything that is shown can be shown, and nobody is left.
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
# What a replica does; all of them end sooner or later by themselves, some only after having been asked in vain.
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
LINES = ("worker: 1", "worker: 3", "chief: 1, worker: 2", "chief: 1, worker: 1, ps: 2", "worker: 2, evaluator: 1")
VICTIMS = ("replica", "replica", "keeper", "supervisor", "supervisor", "command", "warm", "anybody", "everybody")


# All that shows a run, in one process, and the codes with which each of them would have left.
SHOW = """
import sys
from drumline.cli import run
def leave(*words):
    try:
        return run(words)
    except SystemExit as left:
        return left.code
id = sys.argv[1]
commands = (("status", id), ("status", id, "-o", "json"), ("logs", id), ("events", id), ("wait", id))
codes = [leave(*words) for words in commands]
print()
print(codes)
"""


class Hurt(NamedTuple):
    """Who is hurt, how, and so long after the one before."""

    after_seconds: float
    who: str
    how: str


def make_spec(chance: Random) -> str:
    """A line of any kind."""
    roles = chance.choice(LINES).split(", ")
    is_warm = chance.random() < 0.15
    blocks = []
    for role in roles:
        name, _, number = role.partition(": ")
        script = chance.choice(SCRIPTS).format(chance.choice((1, 3, 9)))
        if is_warm:
            script = f"{sys.executable} warm.py 0.{chance.randrange(9)} {chance.choice((0, 0, 3))}"
        blocks.append(f"  {name}: {{replicas: {number}, run: {json.dumps(script)}}}")
    more = [f"restart: {{crash: {chance.randrange(3)}, lost: {chance.randrange(3)}}}"]
    if chance.random() < 0.3:
        more.append("resources: {memory: 50MB}")
    if is_warm:
        more.append("warm: true")
    return "\n".join(("roles:", *blocks, f"timeouts: {{grace: {chance.choice(('0.1', '0.5', '2'))}}}", *more))


def make_hurts(chance: Random) -> list[Hurt]:
    """What is done to it, and when."""
    return [
        Hurt(chance.choice((0.0, 0.02, 0.1, 0.3)) * chance.random(), chance.choice(VICTIMS), chance.choice(SIGNALS))
        for _ in range(chance.randrange(6))
    ]


class Trial:
    """One run, from its start until nothing of it is left."""

    def __init__(self, workspace: Workspace, seed: int) -> None:
        self.chance = Random(f"kills {seed}")
        self.workspace = workspace
        self.hurts = make_hurts(self.chance)
        self.spec = make_spec(self.chance)
        self.stopped: list[int] = []
        self.told: list[str] = []
        self.is_detached = False

    def go(self) -> str:
        """Let it all happen; return in a word what became of the run."""
        self.workspace.write("warm.py", WARM)
        self.workspace.write_spec(self.spec)
        self.is_detached = self.chance.random() < 0.4
        words = ("train", "-d") if self.is_detached else ("train",)
        with (self.workspace.path / "out").open("w") as out:
            command = self.workspace.command(*words, stdout=out)
            try:
                self.wait_for(self.chance.choice(("nothing", "folder", "journal", "somebody", "somebody")), command)
                for hurt in self.hurts:
                    time.sleep(hurt.after_seconds)
                    self.hurt(hurt, command)
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
        # Whoever is interrupted before Python has read a line of ours is shown what Python shows.
        is_early = err.endswith("KeyboardInterrupt\n") and "drumline/__main__.py" not in err
        assert "Traceback" not in err or is_early, err
        for run in [run for run in runs if not self.is_planned(run)]:
            shutil.rmtree(run.path)  # never one, and passed over by all that shows runs
            runs.remove(run)
        for run in runs:
            self.check(run, command.returncode)
        self.workspace.leave()
        return ", ".join(str(run.state.phase) for run in runs) or "nothing"

    @staticmethod
    def is_planned(run: Run) -> bool:
        """Whether it is a run; a folder without a plan was never one."""
        return run.folder.plan_file.exists()

    def wait_for(self, what: str, command: subprocess.Popen[str]) -> None:
        """Wait until there is so much of the run, or nothing more will come of it."""

        def is_there() -> bool:
            runs = self.workspace.runs()
            if what == "folder":
                return bool(runs)
            if what == "journal":
                return any(run.folder.journal_file.exists() for run in runs)
            planned = [run for run in runs if self.is_planned(run)]
            return any(isinstance(event, ReplicaStarted) for run in planned for event in run.events)

        if what != "nothing":
            wait_until(lambda: is_there() or command.poll() not in (None, 0))

    def hurt(self, hurt: Hurt, command: subprocess.Popen[str]) -> None:
        """Hurt whoever is meant, if there is one."""
        number = getattr(signal, f"SIG{hurt.how}")
        for pid in self.find(hurt.who, command):
            self.told.append(f"{hurt.how} {hurt.who} {pid}")
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                if hurt.how == "STOP":
                    self.stopped.append(pid)

    def find(self, who: str, command: subprocess.Popen[str]) -> list[int]:
        """The processes that are meant, one of them or all."""
        everybody = sorted(self.workspace.processes())
        if who == "everybody":
            return everybody
        runs = self.workspace.runs()
        found = everybody
        if who == "command":
            found = [command.pid] if command.poll() is None else []
        elif who == "warm":
            found = [known.pid for known in list_warm_processes(self.workspace.home)] if "warm:" in self.spec else []
        elif who == "supervisor":
            found = [pid for run in runs if (pid := run.supervisor())]
        elif who in ("replica", "keeper"):
            with suppress(Exception):  # what is asked is not there yet
                run = runs[0]
                ids = [str(each.id) for each in run.folder.plan().replicas]
                traces = [run.trace(name, run.state.attempt) for name in ids]
                pids = [trace.pid if who == "replica" else trace.keeper for trace in traces]
                found = [pid for pid in pids if pid is not None and pid in everybody]
        return [self.chance.choice(found)] if found else []

    def end(self, run: Run) -> None:
        """Have it end, by itself or not; whoever asks for that is hurt now and then as well."""
        if not self.is_planned(run):
            return
        asks = ["supervise", "kill", "kill --force", "wait"]
        for _ in range(20):
            if run.state.phase.is_final and run.supervisor() is None:
                return
            ask = self.chance.choice(asks)
            asker = self.workspace.command(*ask.split(), run.id)
            try:
                out, err = asker.communicate(timeout=3.0 if ask == "wait" else PATIENCE_SECONDS)
                assert "Traceback" not in err, err
                assert asker.returncode in (0, 1, 3), f"{ask}: {asker.returncode} {out}{err}"
                assert asker.returncode == 0 or ask in ("supervise", "wait"), f"{ask}: {asker.returncode} {out}{err}"
            except subprocess.TimeoutExpired:
                asker.kill()
                asker.communicate()
                assert ask == "wait", f"{ask} never came back"
                asks = ["kill", "kill --force"]  # it goes on and on
        wait_until(lambda: run.supervisor() is None, PATIENCE_SECONDS)
        assert run.state.phase.is_final, f"{run.state.phase} for ever"

    def check(self, run: Run, code: int) -> None:
        """What must hold of a run that is over."""
        assert "Traceback" not in run.said(), run.said()
        state, plan, events = run.state, run.folder.plan(), run.events
        ended = {(e.replica, e.attempt, e.incarnation) for e in events if isinstance(e, ReplicaExited)}
        begun = {(e.replica, e.attempt, e.incarnation) for e in events if isinstance(e, ReplicaStarted)}
        assert begun <= ended, f"nobody saw the end of {begun - ended}"
        for failure, spent in state.restarts.items():
            assert spent <= getattr(plan.restart, failure), f"{spent} restarts for {failure}"
        so_far = new_run(plan)
        for event in events:
            before, (so_far, _) = so_far, step(plan, so_far, event)
            if before.phase.is_final and not isinstance(event, ResumeRequested):
                assert so_far == before, f"{event} changed a run that was over"
        assert not list((run.path / "attempts").rglob(GROUP)) if (run.path / "attempts").exists() else True
        is_fine = state.phase is Phase.FINISHED
        if not self.hurts and not self.is_detached:
            assert code == (0 if is_fine else 1), f"exit code {code} of a run that is {state.phase}"
        shown = self.workspace.command(run.id, program=(sys.executable, "-c", SHOW))
        out, err = shown.communicate(timeout=PATIENCE_SECONDS)
        assert (out.splitlines()[-1], err) == (f"[0, 0, 0, 0, {0 if is_fine else 1}]", f"run {run.id}: {state.phase}\n")


def try_one(seed: int) -> str:
    """One run in a workspace of its own; return in a word what became of it."""
    with TemporaryDirectory(prefix="kills-") as folder:
        workspace = Workspace(Path(folder) / "workspace")
        trial = Trial(workspace, seed)
        try:
            return trial.go()
        except BaseException:
            print(f"FOUND by `python -m fuzz.kills --runs 1 --seed {seed}`\n{trial.spec}\n{trial.told}", flush=True)
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
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            traceback.print_exc()
            word, wrong = "WRONG", wrong + 1
        done += 1
        print(f"{seed} {time.monotonic() - began:5.1f} s  {word}", flush=True)
    print(f"{done} runs from seed {given.seed}, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
