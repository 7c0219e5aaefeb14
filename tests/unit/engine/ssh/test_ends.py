"""Ends are told in the order in which they came, whichever host says so first."""

from __future__ import annotations

from collections.abc import Callable

from drumline.engine.ssh.ends import Ends
from drumline.plan.types import ReplicaId
from drumline.run.event import Exit, ReplicaExited
from drumline.run.usage import Usage


class Clock:
    """A loop whose times come when they are let come."""

    def __init__(self) -> None:
        self.due: list[Callable[[], object]] = []

    def on_readable(self, descriptor: int, call: Callable[[], object]) -> None:
        raise AssertionError

    def forget(self, descriptor: int) -> None:
        raise AssertionError

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        self.due.append(call)

    def now(self) -> float:
        return 0.0


def end(index: int, at: float) -> ReplicaExited:
    return ReplicaExited(ReplicaId("worker", index), 0, 0, Exit(code=0), at)


def make() -> tuple[Ends, list[int], Clock]:
    told: list[int] = []
    clock = Clock()

    def tell(event: ReplicaExited, usage: Usage | None) -> None:
        told.append(event.replica.index)

    return Ends(clock, tell), told, clock


def test_without_orders_an_end_is_told_at_once() -> None:
    ends, told, _ = make()
    ends.add(end(1, 5.0), None)
    ends.add(end(0, 4.0), None)
    assert told == [1, 0]


def test_an_end_waits_for_every_host_that_was_told_something_and_an_earlier_one_goes_first() -> None:
    ends, told, _ = make()
    ends.expect("a")
    ends.expect("b")
    ends.add(end(1, 5.0), None)
    ends.done("a")
    assert told == []
    ends.add(end(0, 4.0), None)
    ends.done("b")
    assert told == [0, 1]


def test_a_host_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    ends, told, clock = make()
    ends.expect("a")
    ends.add(end(0, 4.0), None)
    assert told == []
    for call in clock.due:
        call()
    assert told == [0]
