"""A supervisor waits for places as long as that is soon; then it is told when they are there."""

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
    """Hosts that answer when they are allowed to."""

    may = asyncio.Event()
    error = cast("Exception | None", None)

    async def place(self, attempt: int) -> tuple[HostPlacement, list[str]]:
        await self.may.wait()
        if self.error:
            raise self.error
        return PLACED, [f"attempt {attempt}"]


class Up(HostConnection):
    """A host that answers, and has a core."""

    def __init__(self, host: Host, hosts: Hosts) -> None:
        super().__init__(host, hosts, asyncio.Queue())
        self.facts = HostFacts("/base", "boot", "3.11.2", 1.0, 1 << 30, (), "10.0.0.1")
        self._connected.set()


class Story:
    """AttemptPlacements of a run, with what they told, and whoever is asked for them."""

    def __init__(self, folder: Path, patience_seconds: float) -> None:
        self.told: list[Event] = []
        self.loop = SteppedLoop()
        self.places = AttemptPlacements(folder, self.told.append, patience_seconds)
        hosts = Hosts((Host("a"),))
        self.connection = HostConnection(hosts.all[0], hosts, asyncio.Queue())
        self.request = Slow(plan_of("roles: {worker: 1}\nengine: {ssh: [a]}"), {"a": self.connection}, (), 60.0)
        Slow.may, Slow.error = asyncio.Event(), None

    def ask(self, attempt: int) -> tuple[HostPlacement, Sequence[str]]:
        return self.loop.wait(self.places.ask(attempt, self.request))

    def answer(self) -> None:
        self.request.may.set()

    def until_told(self) -> None:
        self.answer()
        while not self.told:
            self.loop.turn()


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    story = Story(tmp_path, patience_seconds=0.01)
    yield story
    story.places.close()
    story.loop.turn()


def test_an_answer_that_comes_soon_is_waited_for(tmp_path: Path) -> None:
    story = Story(tmp_path, patience_seconds=60.0)
    story.answer()
    assert story.ask(0) == (PLACED, ["attempt 0"])
    assert story.places.get(0) == PLACED
    assert story.told == []


def test_one_that_takes_long_is_told_when_it_is_there_and_not_asked_for_again(story: Story, tmp_path: Path) -> None:
    with pytest.raises(MustWait, match="waits for a to answer"):
        story.ask(2)
    with pytest.raises(MustWait):
        story.ask(2)
    assert story.places.get(2) is None
    story.until_told()
    assert story.told == [RoomFound(2)]
    assert story.ask(2) == (PLACED, ["attempt 2"])
    assert AttemptPlacements(tmp_path, story.told.append).get(2) == PLACED


def test_what_goes_wrong_is_raised_to_whoever_asks_then_and_the_next_question_is_a_new_one(story: Story) -> None:
    Slow.error = HostMustWait("a", "a has no room")
    with pytest.raises(MustWait, match="to answer"):
        story.ask(0)
    story.until_told()
    with pytest.raises(HostMustWait, match="a has no room"):
        story.ask(0)
    Slow.error = EngineError("the disk of a is full")
    with pytest.raises(EngineError, match="the disk of a is full"):
        story.ask(0)


def test_a_host_that_is_known_to_be_away_is_named_with_the_reason(story: Story) -> None:
    story.connection.trouble = UnreachableError("a cannot be reached: connection refused")
    with pytest.raises(MustWait, match=r"waits for a to answer \(a cannot be reached: connection refused\)"):
        story.ask(0)


def test_a_line_waits_for_a_host_that_is_being_prepared_only_if_it_does_not_fit_without() -> None:
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
    with pytest.raises(UnreachableError, match="a does not answer"):  # when it is asked for a place
        asyncio.run(alone.place(0))
