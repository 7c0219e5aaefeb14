"""A supervisor with a slow engine: nothing else waits for it."""

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
        """Answer late."""
        await asyncio.sleep(SLOW_SECONDS)
        return await super().place(plan, attempt=attempt, keep=keep)

    async def start(self, launches: Sequence[Launch]) -> None:
        """Begin late."""
        await asyncio.sleep(SLOW_SECONDS)
        self.started += 1
        await super().start(launches)


class Trial:
    """A run on slow hosts, in a time of its own."""

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
        """The journal."""
        return [record.event for record in read_journal(self.path, self.supervisor.plan)]

    def stop(self) -> float:
        """Ask for the end; return how long it took."""
        asked = self.loop.time()
        self.supervisor.take(StopRequested(at_seconds=asked))
        self.loop.run_until_complete(self.running)
        return self.loop.time() - asked


def test_what_happens_while_hosts_are_asked_for_places_is_written_down_at_once(tmp_path: Path) -> None:
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


def test_a_run_on_hosts_that_take_half_a_minute_to_place_it_ends_at_once(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.loop.pass_time(1)
    assert trial.stop() < 1
    assert trial.supervisor.state.phase is Phase.KILLED
    assert trial.session.started == 0


def test_a_run_on_hosts_that_take_half_a_minute_to_start_it_ends_at_once(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.loop.pass_time(SLOW_SECONDS + 1)
    assert any(isinstance(event, AttemptPlaced) for event in trial.events)
    assert trial.stop() < 1
    assert trial.supervisor.state.phase is Phase.KILLED
    assert trial.session.started == 0
