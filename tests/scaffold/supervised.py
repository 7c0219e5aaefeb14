"""Engines under test: with a recorder of all events, or with a real supervisor."""

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
_OTHER_ATTEMPT = 1000  # larger than the attempts of all tests


Ability = TypeVar("Ability")


def require_ability(engine: object, ability: type[Ability]) -> Ability:
    """Return the engine; skip the test if it does not have this ability."""
    if not isinstance(engine, ability):
        pytest.skip(f"the engine is not {ability.__name__}")
    return engine


def cast(testbed: EngineTestBed, text: str, behaviors: Mapping[str, Behavior | tuple[Behavior, ...]]) -> Plan:
    """Return a plan in which each replica and helper has its behavior, or one behavior for each attempt."""
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
    """Return a plan of workers, one for each behavior."""
    return cast(
        testbed, f"worker*{len(behaviors)}", {f"worker.{index}": behavior for index, behavior in enumerate(behaviors)}
    )


def worker(index: int) -> ReplicaId:
    """Return the id of a worker."""
    return ReplicaId("worker", index)


def turn_until(loop: SteppedLoop, look: Callable[[], object], between: Callable[[], object] = lambda: None) -> None:
    """Run the loop until `look` returns true; it is also called when the loop has nothing to do."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s"
        loop.turn()
        between()


def watch(testbed: EngineTestBed, folder: Path, *behaviors: Behavior) -> SessionRecorder:
    """Record the events of a new run of workers, one for each behavior."""
    return SessionRecorder(testbed, folder / "run", workers(testbed, *behaviors))


class SessionRecorder:
    """An engine with its own loop over a run's folder, and a record of its events."""

    def __init__(self, testbed: EngineTestBed, run_dir: Path, plan: Plan) -> None:
        self.plan = plan
        self._testbed = testbed
        self.run_dir = run_dir
        self.loop = testbed.make_loop()
        self.engine = testbed.make_engine()
        self.told: list[Event] = []
        self._other_plan = plan.replace(replicas=(plan.replicas[0].replace(argv=testbed.command(Behavior())),))
        self._other_attempts = 0
        run_dir.mkdir(exist_ok=True)
        (run_dir / "plan.json").write_text(plan_to_json(plan), "utf-8")
        self.session = testbed.open_session(self.engine, run_dir, self.loop)
        self._reading = self.loop.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.session.events():
            self.told.append(event)

    def again(self, testbed: EngineTestBed) -> SessionRecorder:
        """Return a recorder with another engine over the same folder, as after a return."""
        return SessionRecorder(testbed, self.run_dir, self.plan)

    def launches(self, attempt: int = 0) -> tuple[Launch, ...]:
        """Return the launches of an attempt."""
        return bind(self.plan, self.loop.wait(self.session.place(self.plan)).places, attempt=attempt)

    def start_again(self, first: Sequence[Launch], incarnations: Mapping[ReplicaId, int]) -> None:
        """Start replicas that were started before, some in other incarnations, at their places."""
        addresses = [launch.place.address for launch in first]
        placed = self.loop.wait(self.session.place(self.plan, keep=addresses))
        self.loop.wait(self.session.start(bind(self.plan, placed.places, incarnations=incarnations)))

    def start(self, attempt: int = 0) -> None:
        """Start the replicas, and return when all have a keeper or agent; their processes may start later."""
        self.loop.wait(self.session.start(self.launches(attempt)))
        self.until(lambda: all(self._testbed.has_begun(self.run_dir, each.id, attempt) for each in self.plan.replicas))

    def stop(self, *replicas: ReplicaId, attempt: int = 0, grace_seconds: float = PATIENCE_SECONDS) -> None:
        """Stop these replicas, or all; by default, with a long grace."""
        names = replicas or tuple(replica.id for replica in self.plan.replicas)
        self.loop.wait(self.session.stop([Incarnation(each, attempt) for each in names], grace_seconds=grace_seconds))

    def starts(self, attempt: int = 0) -> list[ReplicaId]:
        """Return the replicas with a start event, in the order of the events."""
        return [each.replica for each in self.told if isinstance(each, ReplicaStarted) and each.attempt == attempt]

    def ends(self, attempt: int = 0) -> list[ReplicaExited]:
        """Return the exit events, in their order."""
        return [each for each in self.told if isinstance(each, ReplicaExited) and each.attempt == attempt]

    def exits(self, attempt: int = 0) -> dict[ReplicaId, Exit]:
        """Return the exit of each replica that has ended."""
        return {end.replica: end.exit for end in self.ends(attempt)}

    def until(self, look: Callable[[], object]) -> None:
        """Run the loop until `look` returns true."""
        turn_until(self.loop, look)

    def until_started(self, attempt: int = 0) -> None:
        """Run the loop until the whole gang has started."""
        self.until(lambda: len(self.starts(attempt)) >= len(self.plan.replicas))

    def until_said(self, text: str, *, replica: ReplicaId = FIRST, attempt: int = 0) -> None:
        """Run the loop until a replica's log contains this text."""
        self.until(lambda: text in self.log(replica, attempt))

    def until_ended(self, attempt: int = 0) -> None:
        """Run the loop until the whole gang has ended, and all events of it are reported.

        Another replica starts and ends after that: an engine that reports an event twice has done so by then.
        """
        self.until(lambda: len(self.ends(attempt)) >= len(self.plan.replicas))
        self.run_other_replica()

    def run_other_replica(self) -> None:
        """Start another replica and wait for its end, so that all pending events are reported."""
        attempt = _OTHER_ATTEMPT + self._other_attempts
        self._other_attempts += 1
        placed = self.loop.wait(self.session.place(self._other_plan))
        self.loop.wait(self.session.start(bind(self._other_plan, placed.places, attempt=attempt)))
        self.until(lambda: self.ends(attempt))

    def log(self, replica: ReplicaId = FIRST, attempt: int = 0, incarnation: int = 0) -> str:
        """Return the log of a replica."""
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
        self._ends: Callable[[], None] | None = None  # ends the supervisor
        self.replace()

    def replace(self) -> None:
        """Replace the supervisor by another one, as if it had been killed."""
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
        """Return the events of the journal."""
        return [record.event for record in read_journal(self.folder.journal_file, self.plan)]

    @property
    def state(self) -> RunState:
        """Return the state of the run, from its journal."""
        state = new_run(self.plan)
        for record in read_journal(self.folder.journal_file, self.plan):
            state = fold(state, record.event, *record.decisions)
        return state

    def until(self, look: Callable[[], object]) -> None:
        """Continue the run until `look` returns true."""
        turn_until(self.loop, look, self._look_on)

    def until_over(self) -> RunState:
        """Continue the run to its end; return its state."""
        self.until(lambda: self.supervisor.ending)
        self.supervisor.leave()
        return self.state

    def log(self, replica: ReplicaId = FIRST, attempt: int = 0, incarnation: int = 0) -> str:
        """Return the log of a replica."""
        path = self.folder.path / trace_dir(replica, attempt, incarnation) / LOG
        return path.read_text() if path.exists() else ""

    def begin(self, asked: StopRequested | ResumeRequested | None = None) -> None:
        """Start the supervisor; it runs while the loop runs."""
        self.supervisor.begin(asked)
        self._running = self.loop.create_task(self.supervisor.run())
        for _ in range(5):  # do what is possible without waiting
            self.loop.turn_once()

    def _look_on(self) -> None:
        self._marker.mark(self.session.traces())
        if self._running and self._running.done():
            self._running.result()
