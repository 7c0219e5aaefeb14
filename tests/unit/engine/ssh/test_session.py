"""A session with simulated hosts and a simulated clock: slow hosts, errors, ends and releases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from drumline.engine.agent.answers import read_answer
from drumline.engine.protocol import Site
from drumline.engine.ssh import session as sessions
from drumline.engine.ssh.agents import HostFacts
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.inbox import Connected, Received
from drumline.engine.ssh.plan_options import Host, Hosts
from drumline.engine.ssh.reports import EventReport, HostEvent, LogPiece
from drumline.engine.ssh.session import SshSession
from drumline.engine.ssh.sync import ProjectSync
from drumline.errors import EngineError
from drumline.plan.bind import bind
from drumline.plan.codec import plan_from_json, to_data, to_options
from drumline.plan.types import Place, ReplicaId
from drumline.run.event import EngineWarned, Event, Exit, ReplicaExited, ReplicaStarted
from drumline.run.incarnation import Incarnation
from drumline.run.traces import UNREACHED
from drumline.run.unverified import UnverifiedHost, unverified_to_text
from drumline.runtime.keeper import now
from scaffold.loops import SimulatedTimeLoop
from scaffold.plans import plan_of

T = TypeVar("T")

HOSTS = Hosts((Host("h1", cpus=1.0), Host("h2", cpus=1.0)), unique="u", pins={"chief.0": "h1", "worker.0": "h2"})
CHIEF, WORKER = ReplicaId("chief", 0), ReplicaId("worker", 0)
PLACE = Place("", 20000, workdir="/w", output_dir="/o", checkpoint_dir="/c")


class SimulatedHost(HostConnection):
    """A host that answers every request after `answer_seconds`."""

    answer_seconds = 0.0

    async def run(self) -> None:
        self.asked: list[str] = []
        self.facts = HostFacts("/base", "boot", "3.11.2", 1.0, 1 << 30, (), f"10.0.0.{self.host.name[1:]}")
        self._connected.set()
        self._inbox.put_nowait(Connected(self.host.name))
        await asyncio.Event().wait()

    async def ask(self, message: dict[str, Any], kind: type[T]) -> T:
        self.asked.append(message["do"])
        self.received_at = now()
        await asyncio.sleep(self.answer_seconds)
        found: dict[str, Any] = {}
        if message["do"] == "place":
            names = [str(each.id) for each in plan_from_json(message["plan"]).replicas]
            found = {"places": {name: to_data(PLACE) for name in names}, "warnings": []}
        if message["do"] == "usage":
            found = {"usage": []}
        return read_answer(kind, found)

    def report(self, event: HostEvent) -> None:
        self._inbox.put_nowait(Received(self.host.name, EventReport(event)))

    def log(self, replica: ReplicaId, at: int, data: bytes) -> None:
        self._inbox.put_nowait(Received(self.host.name, LogPiece(Incarnation(replica, 0), at, data)))


class SimulatedRun:
    """A chief on h1 and a worker on h2."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = SimulatedTimeLoop()
        self.errors: list[BaseException] = []
        self.loop.set_exception_handler(lambda _, context: self.errors.append(context["exception"]))
        self.plan = plan_of("roles: {chief: 1, worker: 1}").replace(options=to_options(HOSTS), engine="ssh")
        self.session = self.loop.wait(self._open())
        self.loop.turn_once()

    async def _open(self) -> SshSession:
        return SshSession(self.plan, self.folder, Site(self.folder, self.folder / "home", 1))

    def host(self, name: str) -> SimulatedHost:
        return cast("SimulatedHost", self.session._connections[name])

    def place_and_start(self) -> None:
        async def work() -> None:
            placed = await self.session.place(self.plan)
            await self.session.start(bind(self.plan, placed.places))

        self.loop.wait(work())
        self.loop.pass_time(0.0)

    def events(self) -> list[Event]:
        """Return the events that were reported since the last call."""
        self.loop.pass_time(0.0)
        queue = self.session._events._events
        return [cast("Event", queue.get_nowait()) for _ in range(queue.qsize())]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], SimulatedRun]:
    async def supply(*_: object) -> None:
        pass

    monkeypatch.setattr(sessions, "HostConnection", SimulatedHost)
    monkeypatch.setattr(ProjectSync, "supply", supply)
    return lambda: SimulatedRun(tmp_path)


def started(replica: ReplicaId) -> ReplicaStarted:
    return ReplicaStarted(replica, 0, 0, 4711)


def ended(replica: ReplicaId, at_seconds: float = 900.0) -> ReplicaExited:
    return ReplicaExited(replica, 0, 0, Exit(0), at_seconds)


def test_a_host_that_takes_30_s_to_answer_delays_nothing_else(run: Callable[[], SimulatedRun]) -> None:
    simulated = run()
    simulated.place_and_start()
    slow, other = simulated.host("h1"), simulated.host("h2")
    slow.answer_seconds = 30.0
    began = simulated.loop.time()
    simulated.loop.wait(simulated.session.stop([Incarnation(CHIEF, 0)], grace_seconds=5.0))
    simulated.loop.pass_time(0.0)
    assert "stop" in slow.asked
    other.report(started(WORKER))
    other.log(WORKER, 0, b"hello\n")
    assert simulated.events() == [started(WORKER).replace(note="on h2")]
    assert (simulated.folder / Incarnation(WORKER, 0).folder / "log").read_bytes() == b"hello\n"
    simulated.loop.wait(simulated.session.stop([Incarnation(WORKER, 0)], grace_seconds=5.0))
    simulated.loop.pass_time(0.0)
    assert "stop" in other.asked
    assert simulated.loop.time() == began
    simulated.loop.wait(simulated.session.usage(watched=True))  # of hosts that answer at once
    assert simulated.loop.time() <= began + 2.0


def test_messages_of_hosts_are_still_read_after_an_error(
    run: Callable[[], SimulatedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = run()
    simulated.place_and_start()
    host = simulated.host("h2")

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(simulated.session._replicas, "write", full)
    host.log(WORKER, 0, b"hello\n")
    host.report(started(WORKER))
    assert simulated.events() == [started(WORKER).replace(note="on h2")]
    assert [str(each) for each in simulated.errors] == ["no space left"]


def test_the_end_of_a_chief_is_reported_once_its_output_is_fetched_or_cannot_be_fetched(
    run: Callable[[], SimulatedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = asyncio.Event()

    async def collect(_: ProjectSync) -> None:
        await failed.wait()
        raise EngineError("h1 has no disk")

    monkeypatch.setattr(ProjectSync, "collect", collect)
    simulated = run()
    simulated.place_and_start()
    for _ in range(2):
        simulated.host("h1").report(ended(CHIEF))
    assert not simulated.events()
    failed.set()
    assert simulated.events() == [EngineWarned(0, "the output was not fetched: h1 has no disk"), ended(CHIEF)]


@pytest.mark.parametrize(("grace_seconds", "waits_seconds"), [(0.0, 0.0), (5.0, 35.0)])
def test_a_chief_that_is_stopped_is_reported_as_ended_before_all_its_output_is_fetched(
    run: Callable[[], SimulatedRun], monkeypatch: pytest.MonkeyPatch, grace_seconds: float, waits_seconds: float
) -> None:
    monkeypatch.setattr(ProjectSync, "collect", lambda _: asyncio.Event().wait())
    simulated = run()
    simulated.place_and_start()
    simulated.host("h1").report(ended(CHIEF))
    assert not simulated.events()
    simulated.loop.wait(simulated.session.stop([Incarnation(CHIEF, 0)], grace_seconds=grace_seconds))
    if waits_seconds:
        simulated.loop.pass_time(waits_seconds - 1.0)
        assert not simulated.events()
    simulated.loop.pass_time(1.0)
    assert simulated.events() == [ended(CHIEF)]


def test_hosts_are_released_in_time_while_one_sends_output_endlessly(
    run: Callable[[], SimulatedRun], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ProjectSync, "collect", lambda _: asyncio.Event().wait())
    (tmp_path / UNREACHED).write_text(unverified_to_text([UnverifiedHost("h1")]))
    simulated = run()
    simulated.place_and_start()
    began = simulated.loop.time()
    simulated.loop.wait(simulated.session.release(forced=True))
    assert [simulated.host(name).asked[-1] for name in ("h1", "h2")] == ["release", "release"]
    assert simulated.loop.time() - began <= 31.0
    assert not (tmp_path / UNREACHED).exists()
