"""Concurrent queries to all hosts; a host that does not answer in time is left out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from drumline.engine.agent.answers import Done, SocketsAnswer, UsageAnswer, WorkSamplesAnswer
from drumline.engine.agent.launches import incarnation_to_text
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.orders import group_by
from drumline.engine.ssh.receiver import Receiver
from drumline.engine.ssh.replicas import HostReplica, HostReplicas, by_our_clock
from drumline.errors import DrumlineError
from drumline.run.idle import WorkSample
from drumline.run.incarnation import Incarnation
from drumline.run.rendezvous import Sockets
from drumline.run.usage import Usage
from drumline.runtime.keeper import now

T = TypeVar("T")
M = TypeVar("M", Usage, WorkSample)

_ANSWER_SECONDS = 1.0  # for an answer of a host
_SILENT_SECONDS = 8.0  # a host that was silent for so long is not asked; a connected one sends something every 5 s
_STACKS_SECONDS = 30.0


class HostQueries:
    """Asks the hosts on which replicas run; the receiver drops answers about other replicas."""

    patience_seconds = _ANSWER_SECONDS

    def __init__(self, connections: Mapping[str, HostConnection], replicas: HostReplicas, receiver: Receiver) -> None:
        self._connections = connections
        self._replicas = replicas
        self._receiver = receiver

    async def usage(self, *, watched: bool) -> list[Usage]:
        """Return the usage of all running replicas, and of those that have ended since the last call."""
        found = []
        for connection, answer in await self._ask_all({"do": "usage", "watched": watched}, UsageAnswer):
            for incarnation, each in _by_incarnation(answer.usage).items():
                if self._receiver.is_ordered(connection.host.name, incarnation):
                    found.append(by_our_clock(each, connection.skew_seconds))
        return [*found, *self._replicas.used()]

    async def work_samples(self) -> list[WorkSample]:
        """Return the work that each running replica has done so far."""
        answers = await self._ask_all({"do": "work_samples"}, WorkSamplesAnswer)
        return [
            each
            for connection, answer in answers
            for incarnation, each in _by_incarnation(answer.work_samples).items()
            if self._receiver.is_ordered(connection.host.name, incarnation)
        ]

    async def sockets(self) -> list[Sockets]:
        """Return the ports on which replicas listen, and the addresses of their connections."""
        found: list[Sockets] = []
        for connection, answer in await self._ask_all({"do": "sockets"}, SocketsAnswer):
            living = {each.id.replica for each in self._replicas.of(connection.host.name)}
            last = {each.replica: each for each in answer.sockets if each.replica in living}.values()
            found += [Sockets(each.replica, frozenset(each.listening), frozenset(each.connected)) for each in last]
        return found

    async def _ask_all(self, message: dict[str, Any], kind: type[T]) -> list[tuple[HostConnection, T]]:
        hosts = {each.host for each in self._replicas if each.end is None and each.host}
        connections = [self._connections[name] for name in sorted(hosts)]
        connections = [
            connection
            for connection in connections
            if connection.is_up and now() - connection.received_at < _SILENT_SECONDS
        ]

        async def ask(connection: HostConnection) -> tuple[HostConnection, T] | None:
            try:
                return connection, await asyncio.wait_for(connection.ask(message, kind), self.patience_seconds)
            except (TimeoutError, DrumlineError):
                return None

        return [each for each in await asyncio.gather(*map(ask, connections)) if each]

    async def stacks(self, incarnations: Sequence[Incarnation], *, gently: bool) -> None:
        """Have hosts save the stacks of these replicas; return when the hosts that answer have sent them."""
        known = [kept for incarnation in incarnations if (kept := self._replicas.get(incarnation)) and kept.end is None]

        async def ask(host: str, theirs: Sequence[HostReplica]) -> None:
            names = [incarnation_to_text(each.id) for each in theirs]
            message = {"do": "stacks", "gently": gently, "incarnations": names}
            with suppress(TimeoutError, DrumlineError):  # then there are none
                await asyncio.wait_for(self._connections[host].ask(message, Done), _STACKS_SECONDS)

        await asyncio.gather(*(ask(host, theirs) for host, theirs in group_by(known, lambda each: each.host).items()))


def _by_incarnation(measured: Iterable[M]) -> dict[Incarnation, M]:
    """Return the last measurement of each incarnation."""
    return {Incarnation.of(each): each for each in measured}
