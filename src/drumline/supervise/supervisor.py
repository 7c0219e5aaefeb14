"""The supervisor: it records events and the decisions of the state machine, and performs the actions."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from drumline.engine.abilities import Preparing, Serving, require
from drumline.engine.log import log
from drumline.engine.protocol import MustWait, Session
from drumline.engine.tasks import Tasks, Work
from drumline.errors import DrumlineError
from drumline.plan.bind import bind
from drumline.plan.types import TENSORBOARD, Placement, Plan, ReplicaId
from drumline.run.action import Action, ChooseDelay, Finish, Prepare, Serve, SetTimer, Start, Stop, TakeStacks
from drumline.run.entry import Entry
from drumline.run.event import (
    AttemptDelayed,
    AttemptPlaced,
    DelayChosen,
    EngineFailed,
    EngineWarned,
    Event,
    Exit,
    ReplicaExited,
    ResumeRequested,
    RunAccepted,
    StacksTaken,
    StopRequested,
    SupervisorReturned,
    TimerFired,
)
from drumline.run.fold import fold, new_run
from drumline.run.incarnation import Incarnation
from drumline.run.machine import transition
from drumline.run.restart import name_cause
from drumline.run.state import Ending, Phase
from drumline.store.journal import Decided, Journal
from drumline.supervise.perform import Performer
from drumline.supervise.unexpected import describe, handle_unexpected

if TYPE_CHECKING:
    from drumline.supervise.log_tail import LogTailReader

# After the start, work that is not urgent is delayed by this time, so that the replicas can use all cores to start.
_SETTLED_SECONDS = 1.0


class Supervisor:
    """Supervises one run to its end; owns its journal and its loop."""

    def __init__(
        self,
        plan: Plan,
        session: Session,
        journal: Journal,
        history: Iterable[Entry],
        loop: asyncio.AbstractEventLoop,
        folder: Path | None = None,
    ) -> None:
        self.plan = plan
        self._folder = folder  # of the run; None in tests without logs
        self._log_tails: LogTailReader | None = None
        self.state = new_run(plan)
        self.ending: Ending | None = None
        self._session = session
        self._journal = journal
        self._loop = loop
        self._events: deque[Event] = deque()
        self._woken = asyncio.Event()  # there are events
        self._performer = Performer(self._perform)
        self._tasks = Tasks(loop)
        self._addresses: dict[int, tuple[str, ...]] = {}
        self.output_dir = ""  # of the attempt that was placed last
        # Called with the exited replicas before their exits are judged; returns FirstStepTaken if a step was found.
        self.detect_steps: Callable[[Collection[ReplicaId]], Iterable[Event]] = lambda _: ()
        self.take_stacks: Callable[[TakeStacks], Work] = self._take_no_stacks
        self._journal_error = ""  # why the journal cannot be written
        self._failed_attempt = -1  # the last attempt with an unexpected error
        history = list(history)
        for record in history:
            self._note(record.event)
            self.state = fold(self.state, record.event, *record.decisions)
        self._began = loop.time() - _seconds_active(_since_resumed(history), journal.boot, loop.time())
        self.is_new = not self._addresses and self.state == new_run(plan)

    def begin(self, asked: StopRequested | ResumeRequested | SupervisorReturned | None = None) -> None:
        """Start the run, continue where the last supervisor stopped, or begin the next attempt of a resumed run."""
        if isinstance(asked, StopRequested | ResumeRequested):
            self.take(asked)
        if not isinstance(asked, ResumeRequested):
            returned = asked if isinstance(asked, SupervisorReturned) else SupervisorReturned()
            self.take(RunAccepted() if self.is_new else returned)
        self.settle()
        if self.plan.tensorboard is None and isinstance(self._session, Serving):
            self._loop.call_later(_SETTLED_SECONDS, self._detect_summaries)

    def take(self, event: Event) -> None:
        """Accept an event; it is processed at the next `settle`."""
        self._events.append(event)
        self._woken.set()

    async def run(self) -> None:
        """Process events as they arrive, until the run is over."""
        handle_unexpected(self._loop, self._fail)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._performer.run()), group.create_task(self._read_events())]
            while self.ending is None:
                await self._woken.wait()
                self._woken.clear()
                self.settle()
            for task in tasks:
                task.cancel()
        await self._performer.finish()
        await self._tasks.close()

    async def _read_events(self) -> None:
        async for event in self._session.events():
            self.take(event)

    def settle(self) -> None:
        """Record all accepted events and their decisions, and perform the actions; also of events that these cause."""
        while self._events:
            events, self._events = [*self._events], deque()
            if exited := [event.replica for event in events if isinstance(event, ReplicaExited)]:
                events = [*self.detect_steps(exited), *map(self._with_evidence, events)]
            state, actions, decided = self.state, list[Action](), list[Decided]()
            for event in events:
                self._note(event)
                reached = transition(self.plan, state, event)
                state = reached.state
                decided.append((event, reached.decisions))
                actions += reached.actions
            if named := name_cause(self.plan, state):
                decided.append((named, ()))
                state = fold(state, named)
            self._record(decided)
            self.state = state
            for action in actions:
                self._execute(action)
            if self._journal_error and self.state.ending is None:
                # A run without a journal is ended.
                self.take(EngineFailed(self.state.attempt, f"the journal cannot be kept: {self._journal_error}"))

    def leave(self) -> None:
        """Write entries that could not be written to the journal before; log an error if that fails again."""
        try:
            self._journal.append([])
        except OSError as error:
            log(f"the end of the run is not in its journal: {error.strerror}")

    def _with_evidence(self, event: Event) -> Event:
        """Return the event; the exit of a failed replica that may be the cause gets the evidence of its log."""
        if not isinstance(event, ReplicaExited) or event.exit.ok or event.replica.is_helper or self._folder is None:
            return event
        if self.state.ending and self.state.ending.phase is not Phase.FAILED:
            return event
        if self._log_tails is None:
            from drumline.supervise.log_tail import LogTailReader  # noqa: PLC0415 - most runs never need it

            self._log_tails = LogTailReader(self._folder, self.plan)
        return self._log_tails.with_evidence(event, self._addresses.get(event.attempt, ()))

    def _record(self, decided: Sequence[Decided]) -> None:
        try:
            self._journal.append(decided)
            self._journal_error = os.strerror(errno.ENOSPC) if self._journal.is_tight else ""
        except OSError as error:
            self._journal_error = error.strerror or str(error)

    def _note(self, event: Event) -> None:
        if isinstance(event, AttemptPlaced):
            self._addresses[event.attempt] = event.addresses
        elif isinstance(event, AttemptDelayed):
            self._addresses.pop(event.attempt, None)
        elif isinstance(event, ResumeRequested):
            self._began = self._loop.time()

    def _execute(self, action: Action) -> None:
        """Start an action, without waiting for the engine."""
        match action:
            case Prepare() | Start() | Stop():
                self._performer.order(action)
            case TakeStacks():
                self._tasks.begin(self.take_stacks(action))
            case Serve():
                self._tasks.begin(self._serve(action.incarnation))
            case SetTimer():
                passed = self._loop.time() - self._began if action.timer == "run" else 0.0
                fired = TimerFired(action.timer, action.attempt)
                self._loop.call_later(max(0.0, action.seconds - passed), self.take, fired)
            case ChooseDelay():
                self.take(DelayChosen(action.attempt, _about(action.about_seconds)))
            case Finish():
                self.ending = action.ending
            case _:
                assert_never(action)

    async def _perform(self, action: Prepare | Start | Stop) -> None:
        """Have the engine perform an action; if it fails to start or prepare, EngineFailed is recorded."""
        if isinstance(action, Stop):
            await self._session.stop(action.incarnations, grace_seconds=action.grace_seconds)
            return
        attempt = action.attempt if isinstance(action, Start) else self.state.attempt
        try:
            await (self._start(action) if isinstance(action, Start) else self._prepare(action))
        except MustWait as wait:
            if self.state.waits != str(wait):
                self.take(AttemptDelayed(attempt, str(wait)))
        except DrumlineError as error:
            self.take(EngineFailed(attempt, error.message))
        except OSError as error:
            self.take(EngineFailed(attempt, f"the replicas cannot be started: {error.strerror}"))
        except Exception as error:  # noqa: BLE001
            log(f"an order cannot be performed: {action}", error)
            self._fail(describe(error))

    def _fail(self, message: str) -> None:
        """End the run in order after an unexpected error; only the first such error of an attempt is recorded."""
        if self._failed_attempt != self.state.attempt:
            self._failed_attempt = self.state.attempt
            self.take(EngineFailed(self.state.attempt, message))

    async def _take_no_stacks(self, action: TakeStacks) -> None:
        self.take(StacksTaken(action.attempt))

    async def _prepare(self, action: Prepare) -> None:
        if not self._performer.is_stopped(Incarnation(action.helper, 0, action.incarnation)):
            preparing = require(self._session, Preparing, f"the helper {action.helper}", self.plan.engine)
            await preparing.prepare(self.plan, action.helper, incarnation=action.incarnation)

    async def _start(self, action: Start) -> None:
        if all(self._is_stopped(each.id, action) for each in self.plan.replicas):
            return
        placement = await self._placement(action.attempt)
        launches = bind(self.plan, placement, attempt=action.attempt, incarnations=action.incarnations)
        await self._session.start([each for each in launches if not self._is_stopped(each.replica.id, action)])

    def _is_stopped(self, replica: ReplicaId, start: Start) -> bool:
        incarnation = Incarnation(replica, start.attempt, start.incarnations.get(replica, 0))
        return self._performer.is_stopped(incarnation)

    async def _serve(self, incarnation: int) -> None:
        """Start TensorBoard beside the run; an error is recorded as its exit, and does not affect the run."""
        try:
            serving = require(self._session, Serving, "TensorBoard beside a run", self.plan.engine)
            await serving.serve(self.plan, incarnation=incarnation)
        except (DrumlineError, OSError) as error:
            message = error.strerror if isinstance(error, OSError) else str(error)
            self.take(ReplicaExited(TENSORBOARD, 0, incarnation, Exit(message=message or ""), self._loop.time()))

    def _detect_summaries(self) -> None:
        from drumline.supervise.summaries import SummaryDetector  # noqa: PLC0415 - not urgent

        def folder() -> str | None:
            return None if self.state.tensorboard else "" if self.state.ending else self.output_dir

        SummaryDetector(self._loop, folder, self.take).check()

    def addresses(self, attempt: int) -> dict[ReplicaId, str]:
        """Return the recorded address of each replica of an attempt."""
        return dict(zip((each.id for each in self.plan.replicas), self._addresses.get(attempt, ()), strict=False))

    async def _placement(self, attempt: int) -> Placement:
        """Return the placement of an attempt: with the recorded addresses, or a new one, which is recorded at once."""
        if attempt in self._addresses:
            placed = await self._session.place(self.plan, attempt=attempt, keep=self._addresses[attempt])
        else:
            placed = await self._session.place(self.plan, attempt=attempt)
            addresses = tuple(placed.places[replica.id].address for replica in self.plan.replicas)
            self.take(AttemptPlaced(attempt, addresses))
            for warning in placed.warnings:
                self.take(EngineWarned(attempt, warning))
            self.settle()
        self.output_dir = placed.places[self.plan.replicas[0].id].output_dir
        return placed.places


def _about(seconds: float) -> float:
    import random  # noqa: PLC0415 - hardly ever

    return round(seconds * random.uniform(0.5, 1.5), 3)


def _since_resumed(history: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries since the run was accepted, or resumed for the last time."""
    resumed = (number for number, record in enumerate(history) if isinstance(record.event, ResumeRequested))
    return history[max(resumed, default=0) :]


def _seconds_active(history: Sequence[Entry], boot: str, now: float) -> float:
    """Return how many seconds a run has been active, without the time between two boots."""
    seconds = 0.0
    for _, records in groupby(history, key=lambda record: record.boot):
        times = [record.since_boot for record in records]
        seconds += times[-1] - times[0]
    if history and history[-1].boot == boot:
        seconds += max(0.0, now - history[-1].since_boot)
    return seconds
