"""The clocks of a host and of this machine are compared by the quickest of several answers."""

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
    """A connection to a host whose clock is an hour before ours, and which takes its time, now and then."""

    pauses = (0.8, 0.01, 0.7)

    async def ask(self, message: dict[str, Any], kind: type[T]) -> T:
        assert message == {"do": "clock"}
        pause, *self.pauses = self.pauses  # type: ignore[assignment]
        await asyncio.sleep(pause)  # all of it on the way there
        return kind(now=now() + 3600.0, time=0.0)  # type: ignore[call-arg]


def test_the_quickest_answer_counts() -> None:
    host = Host("gpu1")
    connection = SlowLink(host, Hosts((host,)), asyncio.Queue())
    assert asyncio.run(connection._skew()) == pytest.approx(3600.0, abs=0.3)  # half of what the others took is more


def test_what_a_host_measured_is_told_by_our_clock() -> None:
    found = Usage(ReplicaId("worker", 0), 0, 0, at_seconds=3700.0, started_seconds=3610.0, cpu_seconds=5.0)
    usage = by_our_clock(found, 3600.0)
    assert (usage.at_seconds, usage.started_seconds, usage.cpu_seconds) == (100.0, 10.0, 5.0)
