"""The replicas that are missing from a rendezvous."""

from __future__ import annotations

import pytest

from drumline.run.rendezvous import Sockets, describe_missing, find_missing, needs_rendezvous
from scaffold.gangs import gang


def missing(text: str, *, listen: str = "", call: str = "", alive: str = "") -> list[str]:
    """Return the missing replicas, given those that listen, have called the first, and run (by default all)."""
    plan = gang(text)
    names = [replica.id for replica in plan.replicas]
    addresses = {name: f"10.0.0.{number}:{2000 + number}" for number, name in enumerate(names)}
    first = plan.chief
    assert first
    sockets = {
        name: Sockets(
            name,
            frozenset((2000 + number,)) if str(name) in listen.split() else frozenset(),
            frozenset((addresses[first],)) if str(name) in call.split() else frozenset(),
        )
        for number, name in enumerate(names)
        if not alive or str(name) in alive.split()
    }
    return list(map(str, find_missing(plan, addresses, sockets)))


@pytest.mark.parametrize(
    ("text", "listen", "call", "expected"),
    [
        ("worker*2", "worker.0 worker.1", "", []),
        ("worker*2", "worker.0", "", ["worker.1 does not listen on 10.0.0.1:2001"]),
        ("chief worker", "worker.0", "", ["chief.0 does not listen on 10.0.0.0:2000"]),
        ("chief worker ps", "worker.0", "", ["ps.0 does not listen on 10.0.0.2:2002"]),
        ("chief worker ps", "worker.0 ps.0", "", []),
        ("worker*2 evaluator", "worker.0 worker.1", "", []),
        ("worker*2 framework=torch", "", "", ["worker.0 does not listen on 10.0.0.0:2000"]),
        ("worker*2 framework=torch", "worker.0", "", ["worker.1 has not connected to 10.0.0.0:2000"]),
        ("worker*2 framework=torch", "worker.0", "worker.1", []),
        ("worker*3 framework=jax", "worker.0", "worker.2", ["worker.1 has not connected to 10.0.0.0:2000"]),
    ],
)
def test_a_replica_that_does_not_listen_or_connect_is_missing(
    text: str, listen: str, call: str, expected: list[str]
) -> None:
    assert missing(text, listen=listen, call=call) == expected


def test_a_replica_that_has_exited_is_not_missing() -> None:
    assert missing("worker*2", listen="worker.0", alive="worker.0") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("worker*2", True),
        ("worker", False),
        ("chief worker ps", True),
        ("worker*2 framework=plain", False),
        ("worker*2 framework=torch", True),
        ("worker framework=jax", False),
        ("worker evaluator framework=torch", False),
    ],
)
def test_only_a_gang_of_several_replicas_has_a_rendezvous(text: str, expected: bool) -> None:
    assert needs_rendezvous(gang(text)) is expected


@pytest.mark.parametrize(
    ("workers", "end"), [(9, " and 5 more are missing"), (4, " and worker.3 does not listen on a:4")]
)
def test_of_many_missing_replicas_only_the_first_four_are_named(workers: int, end: str) -> None:
    plan = gang(f"worker*{workers}")
    addresses = {replica.id: f"a:{1 + replica.id.index}" for replica in plan.replicas}
    sockets = {replica.id: Sockets(replica.id) for replica in plan.replicas}
    message = describe_missing(find_missing(plan, addresses, sockets))
    assert message.startswith("worker.0 does not listen on a:1, worker.1 ")
    assert message.endswith(end)
