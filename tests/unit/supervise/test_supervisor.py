"""A supervisor with a slow engine records events and stops the run without waiting for the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from drumline.engine.fake import FakeSession
from drumline.engine.fake.behavior import FakeBehavior, command_of
from drumline.engine.protocol import Placed
from drumline.plan.types import Launch, Plan
from drumline.run.event import AttemptPlaced, EngineWarned, Event, ReplicaStarted, StopRequested
from drumline.run.state import Phase
from drumline.store.journal import Journal, read_journal
from drumline.supervise.supervisor import Supervisor
from scaffold.fake_sessions import open_fake
from scaffold.gangs import gang
from scaffold.loops import SimulatedTimeLoop

SLOW_SECONDS = 30.0


class SlowSession(FakeSession):
    """Hosts that take half a minute to answer."""

    started = 0

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placed:
        """Place the plan after a delay."""
        await asyncio.sleep(SLOW_SECONDS)
        return await super().place(plan, attempt=attempt, keep=keep)

    async def start(self, launches: Sequence[Launch]) -> None:
        """Start the launches after a delay."""
        await asyncio.sleep(SLOW_SECONDS)
        self.started += 1
        await super().start(launches)


class Trial:
    """A run on slow hosts, with simulated time."""

    def __init__(self, folder: Path) -> None:
        plan = gang("worker*2")
        endless = tuple(each.replace(argv=command_of(FakeBehavior(exit=None))) for each in plan.replicas)
        self.loop = SimulatedTimeLoop()
        self.session = open_fake(folder, self.loop, SlowSession)
        self.path = folder / "events.jsonl"
        journal = Journal(self.path, boot="b", wall=time.time, since_boot=self.loop.time)
        plan = plan.replace(replicas=endless)
        self.supervisor = Supervisor(plan, self.session, journal, (), self.loop)
        self.began = self.loop.time()
        self.supervisor.begin()
        self.running = self.loop.create_task(self.supervisor.run())

    @property
    def events(self) -> list[Event]:
        """Return the events in the journal."""
        return [record.event for record in read_journal(self.path, self.supervisor.plan)]

    def stop(self) -> float:
        """Request a stop; return the seconds until the run was over."""
        asked = self.loop.time()
        self.supervisor.take(StopRequested(at_seconds=asked))
        self.loop.run_until_complete(self.running)
        return self.loop.time() - asked


def test_an_event_during_a_slow_placement_is_recorded_at_once(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.loop.pass_time(1)
    said = EngineWarned(0, "said meanwhile")
    trial.supervisor.take(said)
    trial.loop.pass_time(1)
    assert said in trial.events
    assert not any(isinstance(event, AttemptPlaced) for event in trial.events)
    trial.loop.pass_time(2 * SLOW_SECONDS)
    assert len([event for event in trial.events if isinstance(event, ReplicaStarted)]) == 2
    trial.stop()


def test_a_stop_during_a_slow_placement_ends_the_run_at_once(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.loop.pass_time(1)
    assert trial.stop() < 1
    assert trial.supervisor.state.phase is Phase.KILLED
    assert trial.session.started == 0


def test_a_stop_during_a_slow_start_ends_the_run_at_once(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.loop.pass_time(SLOW_SECONDS + 1)
    assert any(isinstance(event, AttemptPlaced) for event in trial.events)
    assert trial.stop() < 1
    assert trial.supervisor.state.phase is Phase.KILLED
    assert trial.session.started == 0
