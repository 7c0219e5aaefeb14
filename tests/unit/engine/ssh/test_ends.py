"""Ends are told in the order in which they came, whichever host says so first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from drumline.engine.ssh.ends import Ends
from drumline.plan.types import ReplicaId
from drumline.run.event import Exit, ReplicaExited
from drumline.run.usage import Usage
from scaffold.loops import SimulatedTimeLoop


def end(index: int, at: float) -> ReplicaExited:
    return ReplicaExited(ReplicaId("worker", index), 0, 0, Exit(code=0), at)


def make(*, is_reached: Callable[[str], bool] = lambda _: False) -> tuple[Ends, list[int], SimulatedTimeLoop]:
    told: list[int] = []
    clock = SimulatedTimeLoop()

    def tell(event: ReplicaExited, usage: Usage | None) -> None:
        told.append(event.replica.index)

    return Ends(clock, tell, is_reached), told, clock


def test_without_orders_an_end_is_told_at_once() -> None:
    ends, told, _ = make()
    ends.add(end(1, 5.0), None)
    ends.add(end(0, 4.0), None)
    assert told == [1, 0]


@pytest.mark.parametrize("hosts", [("a", "b"), ("a", "a")], ids=["every host", "one that was told more"])
def test_an_end_waits_for_all_that_hosts_were_told_and_an_earlier_one_goes_first(hosts: tuple[str, str]) -> None:
    ends, told, _ = make()
    first, second = map(ends.expect, hosts)
    ends.add(end(1, 5.0), None)
    ends.done(hosts[0], first)
    assert told == []
    ends.add(end(0, 4.0), None)
    ends.done(hosts[1], second)
    assert told == [0, 1]


def test_a_host_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    ends, told, clock = make()
    ends.expect("a")
    ends.add(end(0, 4.0), None)
    assert told == []
    clock.pass_time(5.0)
    assert told == [0]


def test_a_host_that_is_reached_has_more_time_to_answer() -> None:
    reached = {"a"}
    ends, told, clock = make(is_reached=lambda host: host in reached)
    ends.expect("a")
    ends.add(end(0, 4.0), None)
    for _ in range(3):
        clock.pass_time(5.0)
    assert told == []
    reached.clear()
    clock.pass_time(5.0)
    assert told == [0]


def test_nor_is_one_that_is_reached_waited_for_for_ever() -> None:
    ends, told, clock = make(is_reached=lambda _: True)
    ends.expect("a")
    ends.add(end(0, 4.0), None)
    for _ in range(100):
        clock.pass_time(5.0)
    assert told == [0]


def test_a_host_that_is_told_something_again_and_again_holds_back_no_end_for_ever() -> None:
    ends, told, clock = make(is_reached=lambda _: True)
    ends.expect("a")
    ends.add(end(0, 4.0), None)
    for _ in range(11):
        clock.pass_time(5.0)
        ends.expect("a")  # it has connected anew
    assert told == []
    clock.pass_time(5.0)
    assert told == [0]


def test_an_end_that_a_host_repeats_is_held_and_told_once() -> None:
    ends, told, clock = make()
    number = ends.expect("a")
    for _ in range(1000):
        ends.add(end(0, 4.0), None)
    assert clock.timers == 2  # one for the host, one for the end
    ends.done("a", number)
    assert told == [0]
