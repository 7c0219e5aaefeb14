"""The clock difference to a host is measured, and applied to times that the host sends."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import pytest

from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.plan_options import Host, Hosts
from drumline.engine.ssh.replicas import by_our_clock
from drumline.plan.types import ReplicaId
from drumline.run.usage import Usage
from drumline.runtime.keeper import now

T = TypeVar("T")


class SlowLink(HostConnection):
    """A connection to a host with a clock one hour ahead, with some slow answers."""

    pauses = (0.8, 0.01, 0.7)

    async def ask(self, message: dict[str, Any], kind: type[T]) -> T:
        assert message == {"do": "clock"}
        pause, *self.pauses = self.pauses  # type: ignore[assignment]
        await asyncio.sleep(pause)  # the delay is on the way to the host
        return kind(now=now() + 3600.0, time=0.0)  # type: ignore[call-arg]


def test_the_clock_difference_is_computed_from_the_quickest_answer() -> None:
    host = Host("gpu1")
    connection = SlowLink(host, Hosts((host,)), asyncio.Queue())
    assert asyncio.run(connection._skew()) == pytest.approx(3600.0, abs=0.3)  # other answers have a larger error


def test_times_of_a_host_are_converted_to_the_local_clock() -> None:
    found = Usage(ReplicaId("worker", 0), 0, 0, at_seconds=3700.0, started_seconds=3610.0, cpu_seconds=5.0)
    usage = by_our_clock(found, 3600.0)
    assert (usage.at_seconds, usage.started_seconds, usage.cpu_seconds) == (100.0, 10.0, 5.0)
