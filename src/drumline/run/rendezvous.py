"""The rendezvous: who has to be where so that a line can form, and who is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from drumline.plan.types import COMPUTING, Plan, ReplicaId
from drumline.record import Record
from drumline.words import listed

_MOST_NAMED = 4


class Sockets(Record):
    """On which ports a life listens, and to which `host:port` it is connected."""

    replica: ReplicaId
    listening: frozenset[int] = frozenset()
    connected: frozenset[str] = frozenset()


class Missing(Record):
    """A replica that is not where the others expect it, and where that is."""

    replica: ReplicaId
    address: str
    listens: bool = False  # it need not, or does; it should have called

    def __str__(self) -> str:
        if self.listens:
            return f"{self.replica} has not called {self.address}"
        return f"{self.replica} does not listen on {self.address}"


def needs_rendezvous(plan: Plan) -> bool:
    """Whether the replicas of this line have to find each other at all."""
    return plan.framework != "plain" and len([*_listening(plan), *_connecting(plan)]) > 1


def find_missing(plan: Plan, addresses: Mapping[ReplicaId, str], sockets: Mapping[ReplicaId, Sockets]) -> list[Missing]:
    """Those of the living who do not listen where they should; if nobody, those who have not called the first."""
    silent = [
        Missing(name, addresses[name])
        for name in _listening(plan)
        if name in sockets and _port(addresses[name]) not in sockets[name].listening
    ]
    if silent or plan.framework == "tensorflow":
        return silent
    first = addresses[next(_listening(plan))]
    return [
        Missing(name, first, listens=True)
        for name in _connecting(plan)
        if name in sockets and first not in sockets[name].connected
    ]


def describe_missing(missing: list[Missing]) -> str:
    """`worker.1 does not listen on 127.0.0.1:20001`, and so on; of many the first few."""
    more = [f"{len(missing) - _MOST_NAMED} more are not there"] if len(missing) > _MOST_NAMED else []
    return listed([*map(str, missing[:_MOST_NAMED]), *more])


def _listening(plan: Plan) -> Iterator[ReplicaId]:
    """Who has to listen: in TensorFlow everybody of the cluster whom somebody calls, else the first."""
    if plan.framework != "tensorflow":
        if plan.chief:
            yield plan.chief
        return
    called = {"worker", "ps", "chief", *(("evaluator",) if plan.evaluator_in_cluster else ())}
    if plan.replicas_of("ps"):
        called.discard("chief")  # who coordinates calls
    yield from (replica.id for replica in plan.replicas if replica.id.role in called)


def _connecting(plan: Plan) -> Iterator[ReplicaId]:
    if plan.framework != "tensorflow":
        yield from (each.id for each in plan.replicas if each.id.role in COMPUTING and each.id != plan.chief)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
