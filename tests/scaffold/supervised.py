"""An engine under test: with a recorder of all its events, or with a real supervisor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from drumline.plan.bind import bind
from drumline.plan.codec import plan_to_json
from drumline.plan.types import Data, Launch, Plan, ReplicaId
from drumline.run.event import Event, Exit, ReplicaExited, ReplicaStarted, ResumeRequested, StopRequested
from drumline.run.fold import fold, new_run
from drumline.run.incarnation import Incarnation
from drumline.run.state import RunState
from drumline.run.traces import LOG, trace_dir
from drumline.runtime.keeper import boot_id
from drumline.store.folder import RunFolder
from drumline.store.journal import Journal, read_journal
from drumline.store.launch import write_launch
from drumline.supervise.marks import Marker
from drumline.supervise.supervisor import Supervisor
from scaffold.gangs import gang
from scaffold.loops import SteppedLoop
from scaffold.testbeds import Behavior, EngineTestBed
from scaffold.waiting import PATIENCE_SECONDS

FIRST = ReplicaId("worker", 0)
_BYSTANDER = 1000  # no attempt comes that far


Ability = TypeVar("Ability")


def able(engine: object, ability: type[Ability]) -> Ability:
    """The engine, which is to have this ability; else there is nothing to test."""
    if not isinstance(engine, ability):
        pytest.skip(f"the engine is not {ability.__name__}")
    return engine


def cast(testbed: EngineTestBed, text: str, behaviors: Mapping[str, Behavior | tuple[Behavior, ...]]) -> Plan:
    """A plan in which each replica has its behavior, or one behavior in each attempt; helpers too."""
    plan = gang(text)
    commands = {
        name: testbed.command(*([each] if isinstance(each, Behavior) else each)) for name, each in behaviors.items()
    }
    return testbed.of(plan).replace(
        replicas=tuple(replica.replace(argv=commands[str(replica.id)]) for replica in plan.replicas),
        preparations=tuple(each.replace(argv=commands[each.name]) for each in plan.preparations),
        data=tuple(Data(each.variable, each.path) for each in plan.preparations),
    )


def workers(testbed: EngineTestBed, *behaviors: Behavior) -> Plan:
    """The plan of workers that do these, one each."""
    return cast(
        testbed, f"worker*{len(behaviors)}", {f"worker.{index}": behavior for index, behavior in enumerate(behaviors)}
    )


def worker(index: int) -> ReplicaId:
    """A worker by its number."""
    return ReplicaId("worker", index)


def turn_until(loop: SteppedLoop, look: Callable[[], object], between: Callable[[], object] = lambda: None) -> None:
    """Let a loop turn until something is so, which it may not itself be woken by."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s"
        loop.turn()
        between()


def watch(testbed: EngineTestBed, folder: Path, *behaviors: Behavior) -> SessionRecorder:
    """Watch a new run of workers that are to do these."""
    return SessionRecorder(testbed, folder / "run", workers(testbed, *behaviors))


class SessionRecorder:
    """An engine with a loop of its own over a run's folder, and everything that it tells."""

    def __init__(self, testbed: EngineTestBed, run_dir: Path, plan: Plan) -> None:
        self.plan = plan
        self._testbed = testbed
        self.run_dir = run_dir
        self.loop = testbed.make_loop()
        self.engine = testbed.make_engine()
        self.told: list[Event] = []
        self._bystander = plan.replace(replicas=(plan.replicas[0].replace(argv=testbed.command(Behavior())),))
        self._bystanders = 0
        run_dir.mkdir(exist_ok=True)
        (run_dir / "plan.json").write_text(plan_to_json(plan), "utf-8")
        self.session = testbed.open_session(self.engine, run_dir, self.loop)
        self._reading = self.loop.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.session.events():
            self.told.append(event)

    def again(self, testbed: EngineTestBed) -> SessionRecorder:
        """A supervisor that came back: another engine over the same folder. The loop of the first turns no more."""
        return SessionRecorder(testbed, self.run_dir, self.plan)

    def launches(self, attempt: int = 0) -> tuple[Launch, ...]:
        """Return the launches of an attempt."""
        return bind(self.plan, self.loop.wait(self.session.place(self.plan)).places, attempt=attempt)

    def start_again(self, first: Sequence[Launch], incarnations: Mapping[ReplicaId, int]) -> None:
        """Order replicas to start again that were started before, some in other incarnations, at their places."""
        addresses = [launch.place.address for launch in first]
        placed = self.loop.wait(self.session.place(self.plan, keep=addresses))
        self.loop.wait(self.session.start(bind(self.plan, placed.places, incarnations=incarnations)))

    def start(self, attempt: int = 0) -> None:
        """Start the replicas, and return when all have begun; none needs to run yet."""
        self.loop.wait(self.session.start(self.launches(attempt)))
        self.until(lambda: all(self._testbed.has_begun(self.run_dir, each.id, attempt) for each in self.plan.replicas))

    def stop(self, *replicas: ReplicaId, attempt: int = 0, grace_seconds: float = PATIENCE_SECONDS) -> None:
        """Stop these, or all; by default no replica that obeys TERM is killed."""
        names = replicas or tuple(replica.id for replica in self.plan.replicas)
        self.loop.wait(self.session.stop([Incarnation(each, attempt) for each in names], grace_seconds=grace_seconds))

    def starts(self, attempt: int = 0) -> list[ReplicaId]:
        """Whose starts were told, in the order of telling."""
        return [each.replica for each in self.told if isinstance(each, ReplicaStarted) and each.attempt == attempt]

    def ends(self, attempt: int = 0) -> list[ReplicaExited]:
        """Whose ends were told, in the order of telling."""
        return [each for each in self.told if isinstance(each, ReplicaExited) and each.attempt == attempt]

    def exits(self, attempt: int = 0) -> dict[ReplicaId, Exit]:
        """How each ended."""
        return {end.replica: end.exit for end in self.ends(attempt)}

    def until(self, look: Callable[[], object]) -> None:
        """Let the loop turn until it is so."""
        turn_until(self.loop, look)

    def until_started(self, attempt: int = 0) -> None:
        """Let the loop turn until the whole line has started."""
        self.until(lambda: len(self.starts(attempt)) >= len(self.plan.replicas))

    def until_said(self, text: str, *, replica: ReplicaId = FIRST, attempt: int = 0) -> None:
        """Let the loop turn until a replica has come to say this."""
        self.until(lambda: text in self.log(replica, attempt))

    def until_ended(self, attempt: int = 0) -> None:
        """Let the loop turn until the whole line has ended, and until whatever else there is to tell was told.

        A replica that starts and ends after that is the proof: an engine that has something to tell twice has told it.
        """
        self.until(lambda: len(self.ends(attempt)) >= len(self.plan.replicas))
        self.let_somebody_pass()

    def let_somebody_pass(self) -> None:
        """Let a bystander come and go, so that everything that was under way has happened."""
        attempt = _BYSTANDER + self._bystanders
        self._bystanders += 1
        placed = self.loop.wait(self.session.place(self._bystander))
        self.loop.wait(self.session.start(bind(self._bystander, placed.places, attempt=attempt)))
        self.until(lambda: self.ends(attempt))

    def log(self, replica: ReplicaId = FIRST, attempt: int = 0, incarnation: int = 0) -> str:
        """What a replica has written."""
        path = self.run_dir / trace_dir(replica, attempt, incarnation) / LOG
        return path.read_text() if path.exists() else ""


class SupervisedRun:
    """A run with its folder and journal, and a supervisor that can be replaced."""

    def __init__(self, testbed: EngineTestBed, home: Path, plan: Plan) -> None:
        self._testbed = testbed
        self.plan = plan
        self.folder = RunFolder(home / "runs" / plan.run)
        self.folder.path.mkdir(parents=True)
        write_launch(self.folder, plan, spec=b"", directory=home, at=time.time())
        self._ends: Callable[[], None] | None = None  # the supervisor
        self.replace()

    def replace(self) -> None:
        """The supervisor is gone, in the midst of whatever it did; another one takes the run up."""
        if self._ends:
            self._ends()
        self.loop = self._testbed.make_loop()
        self._ends = self.loop.end
        self.engine = self._testbed.make_engine()
        self._journal = Journal(self.folder.journal_file, boot=boot_id(), wall=time.time, since_boot=self.loop.time)
        history = read_journal(self.folder.journal_file, self.plan)
        self.session = self._testbed.open_session(self.engine, self.folder.path, self.loop)
        self.supervisor = Supervisor(self.plan, self.session, self._journal, history, self.loop)
        self._marker = Marker(returned=not self.supervisor.is_new)
        self._running: asyncio.Task[None] | None = None

    @property
    def events(self) -> list[Event]:
        """The journal."""
        return [record.event for record in read_journal(self.folder.journal_file, self.plan)]

    @property
    def state(self) -> RunState:
        """Where the run stands, by its journal."""
        state = new_run(self.plan)
        for record in read_journal(self.folder.journal_file, self.plan):
            state = fold(state, record.event, *record.decisions)
        return state

    def until(self, look: Callable[[], object]) -> None:
        """Let the run go on until it is so."""
        turn_until(self.loop, look, self._look_on)

    def until_over(self) -> RunState:
        """Let the run go on to its end; return where it stands."""
        self.until(lambda: self.supervisor.ending)
        self.supervisor.leave()
        return self.state

    def log(self, replica: ReplicaId = FIRST, attempt: int = 0, incarnation: int = 0) -> str:
        """What a replica has written."""
        path = self.folder.path / trace_dir(replica, attempt, incarnation) / LOG
        return path.read_text() if path.exists() else ""

    def begin(self, asked: StopRequested | ResumeRequested | None = None) -> None:
        """Let the supervisor begin; it goes on while the loop turns."""
        self.supervisor.begin(asked)
        self._running = self.loop.create_task(self.supervisor.run())
        for _ in range(5):  # whatever can be done without waiting is done
            self.loop.turn_once()

    def _look_on(self) -> None:
        self._marker.mark(self.session.traces())
        if self._running and self._running.done():
            self._running.result()
