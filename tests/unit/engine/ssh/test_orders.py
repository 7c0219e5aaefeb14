"""Ends are held back while a host carries out its orders, for a limited time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drumline.engine.ssh.orders import Orders
from drumline.engine.ssh.replicas import HostReplicas
from drumline.engine.tasks import Tasks
from drumline.plan.types import ReplicaId
from drumline.run.event import Event, Exit, ReplicaExited
from drumline.run.incarnation import Incarnation
from scaffold.loops import SimulatedTimeLoop


class Hosts:
    """Two replicas, and a clock that the test advances."""

    def __init__(self, folder: Path) -> None:
        self.clock = SimulatedTimeLoop()
        self.reported: list[Event] = []
        self.replicas = HostReplicas(folder, self.clock, self.reported.append)
        names = (Incarnation(ReplicaId("worker", index), 0) for index in range(2))
        self.workers = self.replicas.ask((name, "a") for name in names)

    def orders(self, *, is_connected: bool = False) -> Orders:
        self.connection = SimpleNamespace(is_up=False, shell=object() if is_connected else None)
        connections = cast("Any", {"a": self.connection, "b": self.connection})
        return Orders(connections, self.replicas, cast("Any", None), Tasks(self.clock), self.reported.append)

    def end(self, index: int, at: float) -> None:
        self.replicas.end(self.workers[index], Exit(code=0), at)

    @property
    def ended(self) -> list[int]:
        return [each.replica.index for each in self.reported if isinstance(each, ReplicaExited)]


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


@pytest.mark.parametrize("names", [("a", "b"), ("a", "a")], ids=["every host", "two orders for one host"])
def test_an_end_is_held_until_hosts_have_carried_out_all_orders(hosts: Hosts, names: tuple[str, str]) -> None:
    first, second = map(hosts.orders().hold, names)
    hosts.end(1, 5.0)
    hosts.replicas.tracker.release(names[0], first)
    assert hosts.ended == []
    hosts.end(0, 4.0)
    hosts.replicas.tracker.release(names[1], second)
    assert hosts.ended == [0, 1]


def test_ends_are_held_for_a_short_time_for_a_host_that_is_not_connected(hosts: Hosts) -> None:
    hosts.orders().hold("a")
    hosts.end(0, 4.0)
    assert hosts.ended == []
    hosts.clock.pass_time(5.0)
    assert hosts.ended == [0]


def test_ends_are_held_longer_for_a_connected_host(hosts: Hosts) -> None:
    hosts.orders(is_connected=True).hold("a")
    hosts.end(0, 4.0)
    for _ in range(3):
        hosts.clock.pass_time(5.0)
    assert hosts.ended == []
    hosts.connection.shell = None
    hosts.clock.pass_time(5.0)
    assert hosts.ended == [0]


def test_ends_are_held_for_a_limited_time_for_a_connected_host(hosts: Hosts) -> None:
    hosts.orders(is_connected=True).hold("a")
    hosts.end(0, 4.0)
    for _ in range(100):
        hosts.clock.pass_time(5.0)
    assert hosts.ended == [0]


def test_ends_are_held_for_a_limited_time_for_a_host_that_receives_orders_repeatedly(hosts: Hosts) -> None:
    orders = hosts.orders(is_connected=True)
    orders.hold("a")
    hosts.end(0, 4.0)
    for _ in range(11):
        hosts.clock.pass_time(5.0)
        orders.hold("a")  # the host has connected again
    assert hosts.ended == []
    hosts.clock.pass_time(5.0)
    assert hosts.ended == [0]


def test_an_end_that_a_host_repeats_is_held_and_reported_once(hosts: Hosts) -> None:
    number = hosts.orders().hold("a")
    hosts.clock.turn_once()
    for _ in range(1000):
        hosts.end(0, 4.0)
    assert hosts.clock.timers == 2  # one for the host, one for the end
    hosts.replicas.tracker.release("a", number)
    assert hosts.ended == [0]
