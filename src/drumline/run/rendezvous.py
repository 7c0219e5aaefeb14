"""The rendezvous: which replicas have to listen and connect, and which of them have not done so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from drumline.plan.types import COMPUTING, Plan, ReplicaId
from drumline.record import Record
from drumline.words import listed

_MOST_NAMED = 4


class Sockets(Record):
    """The ports on which an incarnation listens, and the addresses (`host:port`) to which it is connected."""

    replica: ReplicaId
    listening: frozenset[int] = frozenset()
    connected: frozenset[str] = frozenset()


class Missing(Record):
    """A replica that does not listen on this address, or is not connected to it."""

    replica: ReplicaId
    address: str
    listens: bool = False  # true: it is not connected to the address; false: it does not listen on it

    def __str__(self) -> str:
        if self.listens:
            return f"{self.replica} has not connected to {self.address}"
        return f"{self.replica} does not listen on {self.address}"


def needs_rendezvous(plan: Plan) -> bool:
    """Return whether the replicas of this plan have to find each other."""
    return plan.framework != "plain" and len([*_listening(plan), *_connecting(plan)]) > 1


def find_missing(plan: Plan, addresses: Mapping[ReplicaId, str], sockets: Mapping[ReplicaId, Sockets]) -> list[Missing]:
    """Return the running replicas that do not listen; if all listen, the replicas that are not connected to the first.

    TensorFlow replicas are not checked for connections.
    """
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
    """Return `worker.1 does not listen on 127.0.0.1:20001`, and so on; of more than four, the first four are named."""
    more = [f"{len(missing) - _MOST_NAMED} more are missing"] if len(missing) > _MOST_NAMED else []
    return listed([*map(str, missing[:_MOST_NAMED]), *more])


def _listening(plan: Plan) -> Iterator[ReplicaId]:
    """Yield the replicas that have to listen: with TensorFlow those to which others connect, else the chief."""
    if plan.framework != "tensorflow":
        if plan.chief:
            yield plan.chief
        return
    called = {"worker", "ps", "chief", *(("evaluator",) if plan.evaluator_in_cluster else ())}
    if plan.replicas_of("ps"):
        called.discard("chief")  # the coordinator connects to the others
    yield from (replica.id for replica in plan.replicas if replica.id.role in called)


def _connecting(plan: Plan) -> Iterator[ReplicaId]:
    if plan.framework != "tensorflow":
        yield from (each.id for each in plan.replicas if each.id.role in COMPUTING and each.id != plan.chief)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
