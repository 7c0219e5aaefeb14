"""Real runs in a workspace: a home, a project, and a check that no process of them is left at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from drumline.engine.local.trace import Trace, read_trace
from drumline.engine.local.warm.client import warm_folder
from drumline.engine.local.warm.pool import list_warm_processes, stop_warm_processes
from drumline.plan.codec import plan_from_json
from drumline.plan.types import Plan, ReplicaId
from drumline.run.entry import Entry
from drumline.run.event import Cause, Event, Exit, ReplicaExited, ReplicaStarted
from drumline.run.fold import fold, new_run
from drumline.run.state import Phase, RunState
from drumline.run.traces import LOG, TRACE, trace_dir
from drumline.runtime.keeper import MOST_RETURNS, SUPERVISOR_RETURNS
from drumline.runtime.lock import is_locked
from drumline.store.folder import RunFolder
from drumline.store.journal import read_journal
from scaffold.processes import kill_and_wait, lock_holder, name_of, pids
from scaffold.waiting import PATIENCE_SECONDS, wait_until

# `make test-ways` forks every replica from a warm process, also those without `warm` in their spec; and it starts
# trainings cold, which are warm otherwise.
COLDLY = bool(os.environ.get("DRUMLINE_TEST_COLD"))
WARMLY = bool(os.environ.get("DRUMLINE_TEST_WARM"))
COMMAND = (
    (sys.executable, str(Path(__file__).with_name("warm_command.py"))) if WARMLY else (sys.executable, "-m", "drumline")
)
# The files that an ended run may leave in its folder.
LEFT_BY_A_RUN = {
    "plan.json",
    "launch.json",
    "drumline.yml",
    "events.jsonl",
    "supervisor.lock",
    "supervisor.log",
    "supervisor.returns",
    "cluster",
    "attempts",
    "output",
    "origin.json",  # of a run on hosts
    "unreached",
}

# drumline, which prints its peak memory last: the kernel's statistics of a child include the memory of its parent.
_MEASURED = """
import sys
from pathlib import Path
from drumline.cli import run
code = run()
sys.stdout.flush()
sys.exit(f"{Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]} {code}")
"""

# Commands as JSON, each run in a fork of this process, which has imported them all; prints the answers as JSON.
_IN_TURN = """
import json, os, sys
from importlib import import_module
from tempfile import TemporaryFile
from drumline.cli import main
commands = json.loads(sys.argv[1])
for words in commands:
    import_module(f"drumline.cli.{words[0]}")
answers = []
for words in commands:
    with TemporaryFile() as out, TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv = ["drumline", *words]
            main()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = [os.pread(file.fileno(), 1 << 24, 0).decode(errors="surrogateescape") for file in (out, err)]
        answers.append([code, *texts])
json.dump(answers, sys.stdout)
"""


class Answer(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


class Workspace:
    """A home and a project folder; its processes are found by their environment, their folder or their open files.

    With `warmth`, a folder that workspaces share, warm processes are shared too and remain after this workspace.
    """

    def __init__(self, path: Path, *, owner: int | None = None, warmth: Path | None = None) -> None:
        self.path = path
        self.home = path / "home"
        self.project = path / "project"
        self.project.mkdir(parents=True)
        self.command_prefix: tuple[str, ...] = ()  # words in front of every command
        self.cores: int | None = 1 if WARMLY else None  # with one, the first launch waits for its warm process
        if owner is not None:
            for folder in (path, self.project):
                os.chown(folder, owner, owner)
            self.command_prefix = ("setpriv", f"--reuid={owner}", f"--regid={owner}", "--clear-groups")
        self.env: dict[str, str] = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DRUMLINE_")},
            "DRUMLINE_HOME": str(self.home),
            "DRUMLINE_GPUS": "",
            "XDG_CACHE_HOME": str(path / "cache"),
            "DRUMLINE_TENSORBOARD": "/nowhere",  # tests of TensorBoard set another; nothing is downloaded
            "HERE": str(self.project),
        }
        self._warmth = warmth
        if warmth:
            self.home.mkdir()
            warm_folder(self.home).symlink_to(warm_folder(warmth))
            # A different variable would need another warm process.
            self.env |= {"XDG_CACHE_HOME": str(warmth / "cache"), "TMPDIR": str(warmth / "tmp")}
            del self.env["HERE"]

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project."""
        path = self.project / name
        path.write_text(textwrap.dedent(text))
        return path

    def command(
        self,
        *words: str,
        program: Sequence[str] = COMMAND,
        env: Mapping[str, str] = {},
        stdout: int | IO[str] = subprocess.PIPE,
        pass_fds: Sequence[int] = (),
        cwd: Path | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command of drumline, in the project unless another folder is given."""
        ways = ("--no-warm",) if COLDLY and words[:1] == ("train",) else ()
        return subprocess.Popen(
            (*self._bound(), *self.command_prefix, *program, *words, *ways),
            cwd=cwd or self.project,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
            pass_fds=pass_fds,
        )

    def _bound(self) -> tuple[str, ...]:
        """Return the words that limit a command to `cores` cores, different ones for concurrent tests if possible."""
        if self.cores is None:
            return ()
        usable = sorted(os.sched_getaffinity(0))
        chosen = {usable[(os.getpid() + number) % len(usable)] for number in range(self.cores)}
        return ("taskset", "-c", ",".join(map(str, sorted(chosen))))

    def run(
        self,
        *words: str,
        env: Mapping[str, str] = {},
        seconds: float = PATIENCE_SECONDS,
        cwd: Path | None = None,
    ) -> Answer:
        """Run a command of drumline to its end."""
        return self._finish(self.command(*words, env=env, cwd=cwd), str(words), seconds)

    @staticmethod
    def _finish(command: subprocess.Popen[str], words: str, seconds: float) -> Answer:
        try:
            out, err = command.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            command.kill()
            out, err = command.communicate()
            raise AssertionError(f"{words} did not end: {out[-2000:]}{err[-2000:]}") from None
        assert "Traceback" not in err, err
        return Answer(command.returncode, out, err)

    def run_in_turn(self, *commands: Sequence[str], seconds: float = PATIENCE_SECONDS) -> list[Answer]:
        """Run commands one after the other, each in its own process that has imported all modules."""
        program = (sys.executable, "-c", _IN_TURN)
        out = self._finish(self.command(json.dumps(commands), program=program), str(commands), seconds).out
        answers = [Answer(*each) for each in json.loads(out)]
        for answer in answers:
            assert "Traceback" not in answer.err, answer.err
        return answers

    def measure(self, *words: str, out: Path) -> tuple[int, int]:
        """Run a command of drumline with its output in a file; return its exit code and peak memory in bytes."""
        with out.open("w") as stream:
            command = self.command(*words, program=(sys.executable, "-c", _MEASURED), stdout=stream)
            _, said = command.communicate(timeout=PATIENCE_SECONDS)
        memory, code = said.split()[-2:]
        return int(code), int(memory) * 1024

    def train(self, spec: str, *words: str, env: Mapping[str, str] = {}) -> Run:
        """Start a run in the background."""
        self.write_spec(spec)
        answer = self.run("train", "-d", *words, env=env)
        assert answer.code == 0, answer.err
        return Run(self, answer.out.strip())

    def write_spec(self, spec: str) -> None:
        """Write the project's spec."""
        framework = "" if "framework:" in spec else "framework: plain\n"
        self.write("drumline.yml", f"project: bad-day\n{framework}{textwrap.dedent(spec)}")

    def descriptors(self, pid: int) -> list[str]:
        """Return the files that a process has open."""
        found = []
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(str(link.readlink()))
        return found

    def runs(self) -> list[Run]:
        """Return all runs of this home, in their order."""
        folders = (self.home / "runs").iterdir() if (self.home / "runs").is_dir() else ()
        return [Run(self, name) for name in sorted((each.name for each in folders if each.name.isdecimal()), key=int)]

    def exists(self, name: str) -> bool:
        """Return whether a file of the project exists; replicas create files as marks."""
        return (self.project / name).exists()

    def numbers(self, name: str) -> list[int]:
        """Return the complete lines of a file of the project as numbers, such as pids."""
        with suppress(FileNotFoundError):
            return [int(line) for line in (self.project / name).read_text().split("\n")[:-1]]
        return []

    def wait_numbers(self, name: str, count: int) -> list[int]:
        """Wait until a file has `count` numbers, and return them."""
        wait_until(lambda: len(self.numbers(name)) >= count)
        return self.numbers(name)

    def processes(self) -> dict[int, str]:
        """Return the running processes of this workspace; in `make test-ways`, without the warm processes."""
        warm = {known.pid for known in list_warm_processes(self.home)} if WARMLY else {}
        mark = f"DRUMLINE_HOME={self.home}".encode()
        roots = (str(self.path), str(self.home))
        return {
            pid: name
            for pid in pids()
            if pid != os.getpid()
            and pid not in warm
            and (_has(pid, mark) or _is_inside(pid, roots))
            and (name := name_of(pid))
        }

    def may_run_python(self) -> bool:
        """Return whether users of this workspace may run the tests' own Python from a shell."""
        return subprocess.run([*self.command_prefix, "test", "-x", sys.executable], check=False).returncode == 0

    def working_folder(self, pid: int) -> str:
        """Return the working folder of a process."""
        return str(Path(f"/proc/{pid}/cwd").readlink())

    def leave(self) -> None:
        """Stop warm processes, and assert that no process is left."""
        self._cool()
        try:
            wait_until(lambda: not self.processes(), 120)  # shorter than the sleep of a test's replica
        except AssertionError:
            left = self.processes()
            self.clear()
            raise AssertionError(f"left alive: {left}") from None
        for run in self.runs():
            assert run.state.phase.is_final, f"run {run.id} is {run.state.phase}"
            found = {entry.name for entry in run.path.iterdir()}
            assert found <= LEFT_BY_A_RUN, f"run {run.id} left {found - LEFT_BY_A_RUN}"

    def clear(self) -> None:
        """Kill all processes, in any state."""
        self._cool()
        while left := self.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _cool(self) -> None:
        if not self._warmth:
            stop_warm_processes(self.home)


class Run:
    """A run of a workspace, seen from outside."""

    def __init__(self, workspace: Workspace, number: str) -> None:
        self.workspace = workspace
        self.id = number
        self.path = workspace.home / "runs" / number
        self.folder = RunFolder(self.path)
        self._read: tuple[object, list[Entry], RunState] | None = None

    @property
    def records(self) -> list[Entry]:
        """Return the entries of the journal."""
        return self._history()[1]

    @property
    def events(self) -> list[Event]:
        """Return the events of the journal."""
        return [record.event for record in self.records]

    @property
    def plan(self) -> Plan:
        """Return its plan, with any owner: drumline itself does not read the plan of another user."""
        return plan_from_json(self.folder.plan_file.read_text("utf-8"))

    @property
    def state(self) -> RunState:
        """Return its state."""
        return self._history()[2]

    def _history(self) -> tuple[object, list[Entry], RunState]:
        """Return the version of plan and journal, the entries and the state; read again only what has changed."""
        version: tuple[object, ...] = (self.folder.plan_file.read_bytes(),)
        with suppress(FileNotFoundError):
            stat = self.folder.journal_file.stat()
            version += (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if self._read is None or self._read[0] != version:
            plan = self.plan
            records, state = read_journal(self.folder.journal_file, plan), new_run(plan)
            for record in records:
                state = fold(state, record.event, *record.decisions)
            self._read = (version, records, state)
        return self._read

    def replica_phase(self, replica: str) -> Phase:
        """Return the phase of a replica."""
        return self.state.replicas[ReplicaId.parse(replica)].phase

    def wait_for(self, phase: Phase, seconds: float = PATIENCE_SECONDS) -> RunState:
        """Wait until the journal has this phase and, if it is final, until the supervisor has exited."""
        with suppress(AssertionError):
            wait_until(lambda: (now := self.state.phase) is phase or now.is_final, seconds)
        assert self.state.phase is phase, f"{self.state}\n{self.said()}"
        if phase.is_final:
            wait_until(lambda: self.supervisor() is None, seconds)
        return self.state

    def wait_started(self) -> None:
        """Wait until every replica of the attempt has started once."""
        expected = {replica.id for replica in self.plan.replicas}

        def all_started() -> bool:
            attempt = self.state.attempt
            started = {e.replica for e in self.events if isinstance(e, ReplicaStarted) and e.attempt == attempt}
            return started == expected

        wait_until(all_started)

    def exits(self, attempt: int = 0) -> list[ReplicaExited]:
        """Return the exits of an attempt's replicas, in the order of the journal."""
        return [event for event in self.events if isinstance(event, ReplicaExited) and event.attempt == attempt]

    def log(self, replica: str, attempt: int = 0, incarnation: int = 0) -> bytes:
        """Return the log of a replica."""
        path = self.trace_dir(replica, attempt, incarnation) / LOG
        return path.read_bytes() if path.exists() else b""

    def exit(self, replica: str) -> Exit:
        """Return the exit of a replica in the last attempt."""
        end = self.state.replicas[ReplicaId.parse(replica)].exit
        assert end is not None
        return end

    @property
    def cause(self) -> Cause:
        """Return the cause of its end."""
        ending = self.state.ending
        assert ending is not None
        assert ending.cause is not None
        return ending.cause

    def trace_dir(self, replica: str, attempt: int = 0, incarnation: int = 0) -> Path:
        """Return the trace folder of a replica's incarnation."""
        return self.path / trace_dir(ReplicaId.parse(replica), attempt, incarnation)

    def trace(self, replica: str, attempt: int = 0, incarnation: int = 0) -> Trace:
        """Return the trace that its keeper wrote."""
        return read_trace(self.trace_dir(replica, attempt, incarnation) / TRACE)

    def is_over(self, replica: str, attempt: int = 0) -> bool:
        """Return whether its keeper has recorded the end of all its processes."""
        return self.trace(replica, attempt).over

    def pid(self, replica: str, attempt: int = 0) -> int:
        """Return the pid of a replica."""
        return wait_until(lambda: self.trace(replica, attempt).pid)

    def keeper(self, replica: str, attempt: int = 0) -> int:
        """Return the pid of a replica's keeper."""
        return wait_until(lambda: self.trace(replica, attempt).keeper)

    def supervisor(self) -> int | None:
        """Return the process that holds the run's lock."""
        return lock_holder(self.folder.lock_file)

    def kill_supervisor(self, *, returns: bool = False) -> None:
        """Kill the supervisor, as the kernel does without memory; unless it `returns`, none of its returns are left."""
        if not returns:
            (self.folder.path / SUPERVISOR_RETURNS).write_text(str(MOST_RETURNS))
        kill_and_wait(wait_until(self.supervisor))
        if returns:
            return
        self.wait_alone()

    def wait_alone(self) -> None:
        """Wait until no process holds the run's lock; a fork of a killed supervisor holds it a moment longer."""
        wait_until(lambda: not is_locked(self.folder.lock_file))

    def said(self) -> str:
        """Return the supervisor's own log."""
        path = self.folder.supervisor_log
        return path.read_text() if path.exists() else ""


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    """Mount a disk of this size at a folder."""
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mount.returncode != 0:
        pytest.skip("mounting needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


# Called for every process of the machine after every test; without Path, which is slow.
def _has(pid: int, mark: bytes) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
        return mark in file.read().split(b"\0")
    return False


def _is_inside(pid: int, roots: Sequence[str]) -> bool:
    """Return whether a process works below one of these folders or has a file of them open."""
    links = [f"/proc/{pid}/cwd"]
    with suppress(OSError):
        links.extend(f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    for link in links:
        with suppress(OSError):
            target = os.readlink(link)  # noqa: PTH115
            if target in roots or target.startswith(tuple(f"{root}/" for root in roots)):
                return True
    return False
