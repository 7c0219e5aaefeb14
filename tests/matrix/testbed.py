"""The environment of the matrix: start a gang, and inject faults from outside."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from drumline.engine.local import LocalEngine
from drumline.engine.local.network import find_network_problem
from drumline.engine.local.warm.pool import stop_warm_processes
from drumline.plan.types import ReplicaId
from drumline.run.drill import Fault
from drumline.run.state import RunState
from drumline.runtime.lock import is_locked
from drumline.supervise.site import site_of
from integration.local.test_limits import find_limits
from matrix.cells import GANGS, SUPERVISOR_KILL, Cell
from matrix.oracle import expect
from scaffold.environments import find_python
from scaffold.processes import kill_and_wait, pids
from scaffold.waiting import wait_until
from scaffold.workspace import COMMAND, Run, Workspace, mounted

SCRIPT = Path(__file__).with_name("training.py")
INJECTED = {"KILL": Fault.KILL, "STOP": Fault.PAUSE, "network cut": Fault.CUT}
# Longer than a slow start on a busy machine is silent or the injection of a fault takes, and much shorter than the
# timeouts of the framework for a peer that does not answer.
PROGRESS_SECONDS = 10
# Longer than the injection of a fault takes: only the faulty replica is silent for so long.
MEETING_SECONDS = 30
# For cells without a silent replica: a slow machine must not be mistaken for one.
PATIENT_SECONDS = 300
GRACE_SECONDS = 2
LIMIT = "900MiB"
DISK = "16m"


class Trial(Protocol):
    """A gang of a cell while it runs."""

    def state(self) -> RunState:
        """Return the state of its run."""
        ...

    def log(self, replica: str, attempt: int, incarnation: int) -> str:
        """Return the log of one incarnation of a replica."""
        ...

    def has_mark(self, name: str) -> bool:
        """Return whether the output folder has this file, which a replica writes as a mark."""
        ...

    def mark(self, name: str) -> None:
        """Write this file into the output folder, for all replicas."""
        ...

    def inject(self, replica: str, fault: str) -> None:
        """Inject a fault from outside; return when it is done."""
        ...

    def is_gone(self, replica: str) -> bool:
        """Return whether this replica's first incarnation has ended."""
        ...

    def left(self) -> list[str]:
        """Return what is still running of it."""
        ...

    def end(self) -> None:
        """Stop what is left of it, in any state."""
        ...


class MatrixTestBed(Protocol):
    """An environment with an engine in which the matrix can run."""

    def why_skipped(self, cell: Cell) -> str | None:
        """Return why this cell cannot run here; None if it can."""
        ...

    def start(self, cell: Cell, stack: ExitStack) -> Trial:
        """Start the gang of a cell; register what has to be cleaned up on the stack."""
        ...


class LocalMatrixTestBed:
    """This machine: one home for all cells, so that one warm process serves them."""

    def __init__(self, folder: Path) -> None:
        self.workspace = Workspace(folder)
        self.workspace.env.pop("PYTHONPATH", None)  # a relative one would prevent warm starts
        self.python = find_python("tensorflow")

    def why_skipped(self, cell: Cell) -> str | None:
        if cell.fault == "OOM" and find_limits() is None:
            return "no memory limit is enforced on this machine"
        if cell.fault == "network cut" and (refused := find_network_problem()):
            return refused
        if cell.fault == "disk full" and os.geteuid() != 0:
            return "mounting needs root"
        return None

    def start(self, cell: Cell, stack: ExitStack) -> LocalTrial:
        folder = self.workspace.project / str(cell).replace(" ", "-").replace(":", "").replace(",", "")
        folder.mkdir()
        (folder / "training.py").write_text(SCRIPT.read_text())
        (folder / "drumline.yml").write_text(self._spec(cell, folder, stack))
        done = subprocess.run(
            [*COMMAND, "train", "-d"], cwd=folder, env=self.workspace.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return LocalTrial(Run(self.workspace, done.stdout.strip()), folder)

    def _spec(self, cell: Cell, folder: Path, stack: ExitStack) -> str:
        roles = dict.fromkeys(GANGS[cell.gang], "1")
        more = []
        if cell.fault == "OOM":
            roles[cell.role] = f"{{resources: {{memory: {LIMIT}}}}}"
        if cell.fault == "network cut":
            more.append("engine: {local: {network: private}}")
        if cell.fault == "disk full":
            stack.enter_context(mounted(folder / "disk", DISK))
            more.append("checkpoint: disk")
        listed = ", ".join(f"{role}: {text}" for role, text in roles.items())
        silent = {"hang", "rendezvous"}.intersection(expect(cell).failures)
        progress, meeting = (PROGRESS_SECONDS, MEETING_SECONDS) if silent else (PATIENT_SECONDS, PATIENT_SECONDS)
        return "\n".join(
            (
                "project: matrix",
                "framework: tensorflow",
                "tensorboard: false",
                f"run: {self.python} training.py",
                f"roles: {{{listed}}}",
                "restart: 1",
                f"timeouts: {{grace: {GRACE_SECONDS}s, progress: {progress}s, rendezvous: {meeting}s}}",
                f"parameters: {{victim: {cell.victim}, phase: {cell.phase}, fault: {cell.fault}}}",
                *more,
                "",
            )
        )

    def close(self) -> None:
        stop_warm_processes(self.workspace.home)
        self.workspace.clear()


class LocalTrial:
    """A run of this machine."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run = run
        self._folder = folder

    def state(self) -> RunState:
        return self.run.state

    def log(self, replica: str, attempt: int, incarnation: int) -> str:
        name = f"{replica}+{incarnation}" if incarnation else replica
        path = self.run.path / f"attempts/{attempt}/{name}/log"
        return path.read_text(errors="replace") if path.exists() else ""

    def has_mark(self, name: str) -> bool:
        return (self.run.folder.output_dir / name).exists()

    def mark(self, name: str) -> None:
        (self.run.folder.output_dir / name).touch()

    def inject(self, replica: str, fault: str) -> None:
        if fault == SUPERVISOR_KILL:
            kill_and_wait(wait_until(self.run.supervisor))
            wait_until(lambda: not is_locked(self.run.folder.lock_file))  # a fork of it may hold it a moment longer
            answer = self.run.workspace.run("supervise", self.run.id)
            assert answer.code == 0, answer
            return
        self.run.pid(replica)  # the chief may reach the phase before the replica has a process
        state, name = self.state(), ReplicaId.parse(replica)
        engine = LocalEngine(site_of(self._folder), dict(os.environ))
        label = f"{replica}+{state.replicas[name].incarnation}" if state.replicas[name].incarnation else replica
        engine.fault_injector().inject(self.run.path / f"attempts/{state.attempt}/{label}", name, INJECTED[fault])
        if fault == "KILL":
            wait_until(lambda: self.is_gone(replica))

    def is_gone(self, replica: str) -> bool:
        return self.run.trace(replica).exit is not None

    def left(self) -> list[str]:
        marks = [f"{pid}: {mark}" for pid in pids() if (mark := self._mark(pid))]
        kept = [str(path) for path in self.run.path.glob("attempts/*/*/keeper") if is_locked(path)]
        return [*marks, *kept]

    def _mark(self, pid: int) -> str:
        """Return the variable that marks a process of this run; empty if it has none."""
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return ""
        own = f"DRUMLINE_TRACE={self.run.path}/".encode()
        return next((each.decode() for each in environment if each.startswith(own)), "")

    def end(self) -> None:
        """Stop what is left of it, in any state."""
        self.run.workspace.run("kill", "--force", self.run.id)
