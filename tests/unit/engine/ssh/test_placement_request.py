"""A host places exactly the requested replicas; any other answer is an error that names the host."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import pytest

from drumline.engine.agent.answers import read_answer
from drumline.engine.agent.errors import MalformedError
from drumline.engine.ssh.agents import HostFacts
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.placement_request import PlacementRequest
from drumline.engine.ssh.plan_options import Host, Hosts
from drumline.plan.codec import plan_from_json, to_data, to_options
from drumline.plan.types import Place, ReplicaId
from scaffold.plans import plan_of

T = TypeVar("T")

PLACE = Place("6.6.6.6", 20000, workdir="/w", output_dir="/o", checkpoint_dir="/c")
HOSTS = Hosts((Host("h1", cpus=1.0), Host("h2", cpus=1.0)), unique="u", pins={"worker.0": "h1", "worker.1": "h2"})


class PlacingHost(HostConnection):
    """A host that places the requested replicas, some more, or some less."""

    def __init__(self, host: Host, *, more: tuple[str, ...] = (), less: tuple[str, ...] = ()) -> None:
        super().__init__(host, HOSTS, asyncio.Queue())
        self.facts = HostFacts("/base", "boot", "3.11.2", 1.0, 1 << 30, (), f"10.0.0.{host.name[1:]}")
        self._connected.set()
        self._more, self._less = more, less
        self.refused: list[MalformedError] = []

    async def ask(self, message: dict[str, Any], kind: type[T]) -> T:
        asked = [str(each.id) for each in plan_from_json(message["plan"]).replicas]
        names = [name for name in (*asked, *self._more) if name not in self._less]
        return read_answer(kind, {"places": {name: to_data(PLACE) for name in names}, "warnings": []})

    def refuse(self, error: MalformedError) -> None:
        self.refused.append(error)


def place(connection: HostConnection) -> Any:
    plan = plan_of("roles: {worker: 2}").replace(options=to_options(HOSTS), engine="ssh")
    connections = {"h1": PlacingHost(HOSTS.all[0]), "h2": connection}
    return asyncio.run(PlacementRequest(plan, connections, (), 1.0).place(0))


def test_each_host_places_its_own_replicas_at_the_address_where_it_was_reached() -> None:
    placed, _ = place(PlacingHost(HOSTS.all[1]))
    workers = ReplicaId("worker", 0), ReplicaId("worker", 1)
    assert placed.hosts == dict(zip(workers, ("h1", "h2"), strict=True))
    assert [placed.places[each].host for each in workers] == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize("name", ["worker.0", "worker.7", "chief.0", "prepare", "../..", "worker.01"])
def test_a_host_that_places_a_replica_that_was_not_requested_is_refused(name: str) -> None:
    connection = PlacingHost(HOSTS.all[1], more=(name,))
    with pytest.raises(MalformedError, match=r"h2 has sent something.*which was not requested"):
        place(connection)
    assert len(connection.refused) == 1


def test_a_host_that_leaves_a_replica_out_is_refused() -> None:
    with pytest.raises(MalformedError, match=r"h2 has sent something.*no place for worker\.1"):
        place(PlacingHost(HOSTS.all[1], less=("worker.1",)))
