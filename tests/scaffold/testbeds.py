"""Testbeds of the contract, one per engine: to test another engine, write its testbed and add it to TEST_BEDS."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from drumline_toy import ToyEngine, agent

from drumline.engine import protocol
from drumline.engine.argument_limits import LONGEST_STRING_BYTES
from drumline.engine.fake import FakeEngine
from drumline.engine.fake.behavior import FakeBehavior, LogLine, command_of
from drumline.engine.local import LocalEngine
from drumline.engine.local.capacity import find_capacity
from drumline.engine.local.python import find_environment
from drumline.engine.local.trace import read_trace
from drumline.engine.local.warm.pool import stop_warm_processes
from drumline.plan.types import Environment, Launch, Plan, ReplicaId, Warm
from drumline.run.event import Exit
from drumline.run.traces import TRACE, trace_dir
from drumline.runtime import forkserver
from drumline.runtime.environment import MARK
from drumline.runtime.keeper import descendants, signal_process
from drumline.runtime.lock import is_locked
from scaffold.loops import SteppedLoop
from scaffold.waiting import PATIENCE_SECONDS, wait_until

NEVER = 9  # a gate that is never opened


class Behavior(NamedTuple):
    """The behavior of a replica: it prints lines, waits for a gate, and ends."""

    says: tuple[str, ...] = ()  # `$NAME` is a variable of the replica's
    until: int | None = None  # the gate that it waits for
    code: int = 0
    signal: int | None = None  # ends it instead of an exit code
    obeys: bool = True  # TERM
    code_on_term: int | None = None  # exit code after TERM; None if the signal ends it
    leaves_child: bool = False  # in its own session, running on


RUNS_UNTIL_STOPPED = Behavior(until=NEVER)


class Rendered(NamedTuple):
    """The output of `render` for a replica."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class EngineTestBed(Protocol):
    """The environment of one engine, for the time of a test."""

    refused: tuple[str, ...]  # a command that this engine refuses

    def make_engine(self) -> protocol.Engine:
        """Return a new engine; every supervisor has its own."""
        ...

    def make_loop(self) -> SteppedLoop:
        """Return a new loop; every supervisor has its own."""
        ...

    def of(self, plan: Plan) -> Plan:
        """Return the plan with what this engine needs."""
        ...

    def command(self, *behaviors: Behavior) -> tuple[str, ...]:
        """Return a command with these behaviors: one in each attempt or incarnation, the last in all that follow."""
        ...

    def rendered(self, engine: protocol.Engine, plan: Plan, launches: tuple[Launch, ...]) -> dict[ReplicaId, Rendered]:
        """Return the parsed output of `render`."""
        ...

    def open_session(self, engine: protocol.Engine, run_dir: Path, loop: SteppedLoop) -> protocol.Session:
        """Return an open session of a run."""
        ...

    def rest(self, session: protocol.Session) -> None:
        """Release what a session keeps for the next attempt."""
        ...

    def have_environment(self, environment: Environment) -> None:
        """Provide this environment, as if it had been built before."""
        ...

    def open(self, gate: int) -> None:
        """Release all replicas that wait at this gate, now or later."""
        ...

    def has_begun(self, run_dir: Path, replica: ReplicaId, attempt: int) -> bool:
        """Return whether a started replica has a keeper or agent."""
        ...

    def wait_ended(self, run_dir: Path, replica: ReplicaId) -> None:
        """Return when this incarnation of the first attempt has ended, without an engine."""
        ...

    def left(self) -> list[str]:
        """Return all running processes that this testbed started."""
        ...

    def close(self) -> None:
        """Stop and remove everything that the testbed made."""
        ...


class OpenSessions:
    """The sessions that a test has opened, each with its loop; a loop that is closed belongs to a killed supervisor.

    With `outlives`, claims of a killed supervisor are released too: they are held by this test process.
    """

    def __init__(self, *, outlives: bool = False) -> None:
        self._outlives = outlives
        self._open: list[tuple[AbstractAsyncContextManager[protocol.Session], protocol.Session, SteppedLoop]] = []

    def open(self, engine: protocol.Engine, run_dir: Path, loop: SteppedLoop) -> protocol.Session:
        """Open the session of a run."""
        entered = engine.open(run_dir)
        session = loop.wait(entered.__aenter__())
        self._open.append((entered, session, loop))
        return session

    def release(self, session: protocol.Session) -> None:
        """Release the claims of a session, on its loop if that is open."""
        loop = next(loop for _, each, loop in self._open if each is session)
        if not loop.is_closed():
            loop.wait(session.release())
        elif self._outlives:
            asyncio.run(session.release())

    def leave(self) -> None:
        """Leave all sessions; their replicas continue."""
        for entered, _, loop in self._open:
            if not loop.is_closed():
                loop.wait(entered.__aexit__(None, None, None))
        self._open.clear()

    def release_all(self) -> None:
        """Release the claims of all sessions, in reverse order, and leave them."""
        for _, session, _ in reversed(self._open):
            self.release(session)
        self.leave()


class LocalTestBed:
    """Processes of this machine; keepers are started by the test process."""

    refused: tuple[str, ...] = ("echo", "x" * (LONGEST_STRING_BYTES + 1))

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._site = protocol.Site(folder, folder / "home", cores=2)
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._before = descendants([os.getpid()])
        self._sessions = OpenSessions(outlives=True)

    def make_engine(self) -> protocol.Engine:
        return LocalEngine(self._site, os.environ)

    def open_session(self, engine: protocol.Engine, run_dir: Path, loop: SteppedLoop) -> protocol.Session:
        return self._sessions.open(engine, run_dir, loop)

    def make_loop(self) -> SteppedLoop:
        self._loop = SteppedLoop()
        return self._loop

    def of(self, plan: Plan) -> Plan:
        return plan

    def command(self, *behaviors: Behavior) -> tuple[str, ...]:
        *first, last = (self._script(behavior) for behavior in behaviors)
        cases = [f"{number}) {script}\n;;" for number, script in enumerate(first)]
        which = "$((DRUMLINE_ATTEMPT + ${DRUMLINE_INCARNATION:-0}))"
        return ("sh", "-c", "\n".join([f"case {which} in", *cases, f"*) {last}\n;;", "esac"]))

    def _script(self, behavior: Behavior) -> str:
        gate = shlex.quote(str(self._gate(behavior.until or 0)))
        steps = {
            "trap '' TERM": not behavior.obeys,
            f"trap 'exit {behavior.code_on_term}' TERM": behavior.code_on_term is not None,
            "setsid sleep 1000000 &": behavior.leaves_child,
            **{f'printf "%s\\n" "{line}"': True for line in behavior.says},
            f"until [ -e {gate} ]; do sleep 0.05; done": behavior.until is not None,
            f"kill -{behavior.signal} $$": behavior.signal is not None,
            f"exit {behavior.code}": True,
        }
        return "\n".join(step for step, wanted in steps.items() if wanted)

    def rendered(self, engine: protocol.Engine, plan: Plan, launches: tuple[Launch, ...]) -> dict[ReplicaId, Rendered]:
        return read_json(engine.render(plan, launches, "json"))

    def rest(self, session: protocol.Session) -> None:
        self._sessions.release(session)

    def have_environment(self, environment: Environment) -> None:
        folder = Path(find_environment(environment, self._site, os.environ).folder)
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / MARK).write_text("{}")

    def open(self, gate: int) -> None:
        self._gate(gate).touch()

    def has_begun(self, run_dir: Path, replica: ReplicaId, attempt: int) -> bool:
        trace = run_dir / trace_dir(replica, attempt) / TRACE
        return read_trace(trace).keeper is not None and not _is_open_here(trace)

    def wait_ended(self, run_dir: Path, replica: ReplicaId) -> None:
        trace = run_dir / trace_dir(replica, 0) / TRACE
        while _is_open_here(trace):
            self._loop.turn()  # a task starts its keeper, and holds the trace until the keeper answers
        wait_until(lambda: read_trace(trace).over and not is_locked(trace))  # its keeper has exited, too

    def left(self) -> list[str]:
        return [_command_line(pid) for pid in self._left() if not _is_fork_server(pid)]

    def _left(self) -> set[int]:
        return descendants([os.getpid()]) - self._before

    def close(self) -> None:
        self._sessions.release_all()
        while left := self._left():  # of a test that failed
            for pid in left:
                signal_process(pid, 9)
        ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # do not adopt orphans of other tests
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)

    def _gate(self, number: int) -> Path:
        return self._folder / f"gate-{number}"


# A script for behaviors; each testbed has its own function that waits for a gate.
_PLAYER = """
import json, os, signal, socket, subprocess, sys, time
PASS_GATE
behaviors = json.loads(sys.argv[1])
number = sum(int(os.environ.get(f"DRUMLINE_{name}", 0)) for name in ("ATTEMPT", "INCARNATION"))
behavior = behaviors[min(number, len(behaviors) - 1)]
if not behavior["obeys"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if behavior["code_on_term"] is not None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(behavior["code_on_term"]))
if behavior["leaves_child"]:
    subprocess.Popen(["sleep", "1000000"], start_new_session=True)
for line in behavior["says"]:
    print(os.path.expandvars(line), flush=True)
if behavior["gate"]:
    pass_gate(behavior["gate"])
if behavior["signal"] is not None:
    os.kill(os.getpid(), behavior["signal"])
sys.exit(behavior["code"])
"""


_PASS_GATE = """
def pass_gate(path):
    while not os.path.exists(path):
        time.sleep(0.01)
"""


def player(pass_gate: str) -> str:
    """Return the script of a replica that takes its behaviors as JSON; `pass_gate` is the source of a function."""
    return _PLAYER.replace("PASS_GATE", pass_gate)


class WarmTestBed(LocalTestBed):
    """Processes of this machine that are forked from a warm one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._site = self._site.replace(
            capacity=find_capacity(1, os.environ)
        )  # with more cores, first replicas start cold
        self._player = folder / "player.py"
        self._player.write_text(player(_PASS_GATE))
        (folder / "home").mkdir(exist_ok=True)

    def of(self, plan: Plan) -> Plan:
        return plan.replace(framework="plain", warm=Warm(keep_seconds=PATIENCE_SECONDS))

    def command(self, *behaviors: Behavior) -> tuple[str, ...]:
        data = [
            {**behavior._asdict(), "gate": behavior.until and str(self._gate(behavior.until))} for behavior in behaviors
        ]
        return (sys.executable, str(self._player), json.dumps(data))

    def left(self) -> list[str]:
        stop_warm_processes(self._folder / "home")
        return super().left()

    def close(self) -> None:
        self._sessions.release_all()
        stop_warm_processes(self._folder / "home")
        super().close()


class ToyTestBed(LocalTestBed):
    """Processes of the toy, an engine of another package, started by its agent."""

    def make_engine(self) -> protocol.Engine:
        return ToyEngine(self._site)

    def rest(self, session: protocol.Session) -> None:
        self._sessions.release(session)

    def has_begun(self, run_dir: Path, replica: ReplicaId, attempt: int) -> bool:
        return bool(self._recorded(run_dir, replica, attempt))

    def wait_ended(self, run_dir: Path, replica: ReplicaId) -> None:
        wait_until(lambda: "ended" in self._recorded(run_dir, replica, 0))

    def left(self) -> list[str]:
        return [_command_line(pid) for pid in self._left()]

    def _left(self) -> set[int]:
        return set(agent.marked(str(self._folder), within=True))

    def close(self) -> None:
        super().close()
        wait_until(lambda: not any(map(is_locked, self._folder.rglob(f"toy/{agent.LOCK}"))))  # agents have exited, too

    def _recorded(self, run_dir: Path, replica: ReplicaId, attempt: int) -> list[str]:
        events, _ = agent.read_lines(run_dir / "toy" / agent.EVENTS, 0)
        return [each["event"] for each in events if each["folder"] == str(run_dir / trace_dir(replica, attempt))]


class FakeTestBed:
    """Fake replicas; waiting for a gate takes hours of simulated time, which pass when it is opened."""

    refused: tuple[str, ...] = ("act", "in three parts")

    def __init__(self, folder: Path) -> None:
        self._site = protocol.Site(folder, folder / "home", cores=2)
        self._sessions = OpenSessions()
        self._passed = 0.0

    def make_engine(self) -> protocol.Engine:
        return FakeEngine(self._site)

    def make_loop(self) -> SteppedLoop:
        return _HurriedLoop(lambda: self._passed)

    def of(self, plan: Plan) -> Plan:
        return plan

    def command(self, *behaviors: Behavior) -> tuple[str, ...]:
        return command_of(*map(self._act, behaviors))

    def _act(self, behavior: Behavior) -> FakeBehavior:
        end = Exit(signal=behavior.signal) if behavior.signal is not None else Exit(code=behavior.code)
        on_term = Exit(signal=15) if behavior.code_on_term is None else Exit(code=behavior.code_on_term)
        return FakeBehavior(
            tuple(map(LogLine, behavior.says)),
            exit=None if behavior.until == NEVER else end,
            after_seconds=0.0 if behavior.until is None else self._wait(behavior.until),
            exit_on_term=on_term if behavior.obeys else None,
        )

    def rendered(self, engine: protocol.Engine, plan: Plan, launches: tuple[Launch, ...]) -> dict[ReplicaId, Rendered]:
        return read_json(engine.render(plan, launches, "json"))

    def open_session(self, engine: protocol.Engine, run_dir: Path, loop: SteppedLoop) -> protocol.Session:
        return self._sessions.open(engine, run_dir, loop)

    def rest(self, session: protocol.Session) -> None:
        """Do nothing: it keeps nothing."""

    def have_environment(self, environment: Environment) -> None:
        """Do nothing: fake replicas need none."""

    def open(self, gate: int) -> None:
        self._passed += self._wait(gate)

    def has_begun(self, run_dir: Path, replica: ReplicaId, attempt: int) -> bool:
        return True

    def wait_ended(self, run_dir: Path, replica: ReplicaId) -> None:
        """Do nothing: its time has passed."""

    def left(self) -> list[str]:
        return []

    def close(self) -> None:
        """Do nothing."""

    def _wait(self, gate: int) -> float:
        return float(3600 * 10**gate)  # all gates before it take less than that together


class _HurriedLoop(SteppedLoop):
    """A real loop with a clock that may be ahead."""

    def __init__(self, ahead: Callable[[], float]) -> None:
        self._ahead = ahead
        super().__init__()

    def time(self) -> float:
        return super().time() + self._ahead()


TEST_BEDS: dict[str, Callable[[Path], EngineTestBed]] = {
    "local": LocalTestBed,
    "warm": WarmTestBed,
    "fake": FakeTestBed,
    "toy": ToyTestBed,
}
_OF_TENSORFLOW = "replicas rejoin one by one with TensorFlow's parameter servers only, and the plans here are `plain`"
# Tests of the contract that are not run on a testbed, with the reason.
EXCEPTIONS: dict[str, Mapping[str, str]] = {
    "warm": {
        "test_only_the_failed_worker_restarts_and_both_incarnations_are_reported": _OF_TENSORFLOW,
        "test_all_replicas_restart_when_a_ps_fails_also_with_a_new_supervisor": _OF_TENSORFLOW,
        "test_a_chief_that_failed_without_a_supervisor_restarts": _OF_TENSORFLOW,
    },
    "toy": {
        "test_build": "it builds no environments",
        "test_serve": "it has no TensorBoard",
    },
}


def read_json(text: str) -> dict[ReplicaId, Rendered]:
    """Parse the output of `render` of engines that write JSON."""
    return {
        ReplicaId.parse(each["id"]): Rendered(tuple(each["argv"]), each["env"]) for each in json.loads(text)["replicas"]
    }


def _is_open_here(file: Path) -> bool:
    """Return whether this process has a file open."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing itself
            if descriptor.readlink() == file:
                return True
    return False


def _is_fork_server(pid: int) -> bool:
    """Return whether this process forks keepers and is no keeper: it ends with its engine."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return False
    return forkserver.__name__ in _command_line(pid) and name != forkserver.KEEPER_NAME


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() or str(pid)
    except OSError:
        return str(pid)
