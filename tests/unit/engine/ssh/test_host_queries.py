"""Of the measurements of a host, one is used for each replica that it was ordered to start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drumline.engine.agent.answers import ReplicaSockets, SocketsAnswer, UsageAnswer, WorkSamplesAnswer
from drumline.engine.ssh.host_queries import HostQueries
from drumline.engine.ssh.replicas import HostReplicas
from drumline.plan.types import ReplicaId
from drumline.run.idle import WorkSample
from drumline.run.incarnation import Incarnation
from drumline.run.usage import Usage
from drumline.runtime.keeper import now

OURS = Incarnation(ReplicaId("worker", 0), 2)  # on h1
THEIRS = Incarnation(ReplicaId("worker", 1), 2)  # on h2
ANSWERS: dict[str, object] = {
    "usage": UsageAnswer(
        tuple(
            Usage(incarnation.replica, incarnation.attempt, incarnation.incarnation, float(at), 0.0, 1.0)
            for at in range(1000)
            for incarnation in (OURS, THEIRS)
        )
    ),
    "work_samples": WorkSamplesAnswer(
        tuple(
            WorkSample(incarnation.replica, incarnation.attempt, incarnation.incarnation, float(at))
            for at in range(1000)
            for incarnation in (OURS, THEIRS)
        )
    ),
    "sockets": SocketsAnswer(tuple(ReplicaSockets(OURS.replica, (port,), ()) for port in range(1, 1001))),
}


class HostConnection:
    """A host that answers with a thousand measurements of one replica."""

    is_up = True
    skew_seconds = 0.0

    def __init__(self, name: str) -> None:
        self.host = SimpleNamespace(name=name)
        self.received_at = now()

    async def ask(self, message: dict[str, Any], kind: type) -> object:
        del kind
        return ANSWERS[message["do"]]


@pytest.fixture
def host_queries(tmp_path: Path) -> HostQueries:
    replicas = HostReplicas(tmp_path, cast("Any", None), lambda _: None)
    for kept in replicas.ask([(OURS, "h1")]):
        kept.is_ordered = True
    receiver = SimpleNamespace(is_ordered=lambda host, incarnation: bool(replicas.find_ordered(incarnation, host)))
    return HostQueries(cast("Any", {"h1": HostConnection("h1")}), replicas, cast("Any", receiver))


def test_of_several_measurements_of_a_replica_in_one_answer_the_last_is_used(host_queries: HostQueries) -> None:
    assert asyncio.run(host_queries.usage(watched=False)) == [
        Usage(OURS.replica, OURS.attempt, OURS.incarnation, 999.0, 0.0, 1.0)
    ]
    assert asyncio.run(host_queries.work_samples()) == [WorkSample(OURS.replica, OURS.attempt, OURS.incarnation, 999.0)]
    (sockets,) = asyncio.run(host_queries.sockets())
    assert sockets.listening == {1000}
