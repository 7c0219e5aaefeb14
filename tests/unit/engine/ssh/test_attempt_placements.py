"""A supervisor waits for a placement for a short time; later it is notified when the placement exists."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from drumline.engine.agent.errors import UnreachableError
from drumline.engine.protocol import MustWait
from drumline.engine.ssh.agents import HostFacts
from drumline.engine.ssh.attempt_placements import AttemptPlacements
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.host_placement import HostPlacement
from drumline.engine.ssh.placement_request import HostMustWait, PlacementRequest
from drumline.engine.ssh.plan_options import Host, Hosts
from drumline.errors import EngineError, InputError
from drumline.plan.types import Place, ReplicaId
from drumline.run.event import Event, RoomFound
from scaffold.loops import SteppedLoop
from scaffold.plans import plan_of

WORKER = ReplicaId("worker", 0)
PLACED = HostPlacement(
    {WORKER: "a"}, {WORKER: Place("10.0.0.1", 20000, workdir="/w", output_dir="/o", checkpoint_dir="/c")}
)


class Slow(PlacementRequest):
    """A placement request that is answered when the test allows it."""

    may = asyncio.Event()
    error = cast("Exception | None", None)

    async def place(self, attempt: int) -> tuple[HostPlacement, list[str]]:
        await self.may.wait()
        if self.error:
            raise self.error
        return PLACED, [f"attempt {attempt}"]


class Up(HostConnection):
    """A host that answers, with one CPU core."""

    def __init__(self, host: Host, hosts: Hosts) -> None:
        super().__init__(host, hosts, asyncio.Queue())
        self.facts = HostFacts("/base", "boot", "3.11.2", 1.0, 1 << 30, (), "10.0.0.1")
        self._connected.set()


class Scenario:
    """AttemptPlacements of a run, with a host that answers requests and the events that were reported."""

    def __init__(self, folder: Path, patience_seconds: float) -> None:
        self.reported: list[Event] = []
        self.loop = SteppedLoop()
        self.placements = AttemptPlacements(folder, self.reported.append, patience_seconds)
        hosts = Hosts((Host("a"),))
        self.connection = HostConnection(hosts.all[0], hosts, asyncio.Queue())
        self.request = Slow(plan_of("roles: {worker: 1}\nengine: {ssh: [a]}"), {"a": self.connection}, (), 60.0)
        Slow.may, Slow.error = asyncio.Event(), None

    def ask(self, attempt: int) -> tuple[HostPlacement, Sequence[str]]:
        return self.loop.wait(self.placements.ask(attempt, self.request))

    def answer(self) -> None:
        self.request.may.set()

    def wait_for_event(self) -> None:
        self.answer()
        while not self.reported:
            self.loop.turn()


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    scenario = Scenario(tmp_path, patience_seconds=0.01)
    yield scenario
    scenario.placements.close()
    scenario.loop.turn()


def test_an_early_answer_is_waited_for(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, patience_seconds=60.0)
    scenario.answer()
    assert scenario.ask(0) == (PLACED, ["attempt 0"])
    assert scenario.placements.get(0) == PLACED
    assert scenario.reported == []


def test_a_late_answer_is_reported_and_not_requested_again(scenario: Scenario, tmp_path: Path) -> None:
    with pytest.raises(MustWait, match="waits for a to answer"):
        scenario.ask(2)
    with pytest.raises(MustWait):
        scenario.ask(2)
    assert scenario.placements.get(2) is None
    scenario.wait_for_event()
    assert scenario.reported == [RoomFound(2)]
    assert scenario.ask(2) == (PLACED, ["attempt 2"])
    assert AttemptPlacements(tmp_path, scenario.reported.append).get(2) == PLACED


def test_an_error_is_raised_at_the_next_call_and_the_call_after_that_is_a_new_request(scenario: Scenario) -> None:
    Slow.error = HostMustWait("a", "a has no room")
    with pytest.raises(MustWait, match="to answer"):
        scenario.ask(0)
    scenario.wait_for_event()
    with pytest.raises(HostMustWait, match="a has no room"):
        scenario.ask(0)
    Slow.error = EngineError("the disk of a is full")
    with pytest.raises(EngineError, match="the disk of a is full"):
        scenario.ask(0)


def test_a_host_that_is_not_connected_is_named_with_the_reason(scenario: Scenario) -> None:
    scenario.connection.trouble = UnreachableError("a cannot be reached: connection refused")
    with pytest.raises(MustWait, match=r"waits for a to answer \(a cannot be reached: connection refused\)"):
        scenario.ask(0)


def test_a_run_waits_for_the_preparation_of_a_host_only_if_it_needs_the_host() -> None:
    hosts = Hosts((Host("a"), Host("b")))
    connections = {host.name: Up(host, hosts) for host in hosts.all}
    plan = plan_of("roles: {worker: 2}\nresources: {cpus: 1}\nengine: {ssh: [a, b]}")
    request = PlacementRequest(plan, connections, (), 60.0, {"b": "prepare is not done on b"})
    with pytest.raises(HostMustWait, match="waits, as prepare is not done on b") as raised:
        asyncio.run(request.place(0))
    assert (raised.value.host, raised.value.coming) == ("b", True)
    with pytest.raises(InputError, match="without b: prepare is not done on b"):
        asyncio.run(request.replace(failed={"b"}).place(0))
    alone = request.replace(plan=plan_of("roles: {worker: 1}\nresources: {cpus: 1}\nengine: {ssh: [a, b]}"))
    with pytest.raises(UnreachableError, match="a does not answer"):  # when a placement is requested
        asyncio.run(alone.place(0))
