"""Questions to all hosts at once; only those are waited for that answer at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from drumline.engine.agent.answers import Done, PulsesAnswer, SocketsAnswer, UsageAnswer
from drumline.engine.agent.launches import life_to_data
from drumline.engine.incarnation import Incarnation
from drumline.engine.ssh.link import Link
from drumline.engine.ssh.orders import by
from drumline.engine.ssh.replicas import HostReplica, HostReplicas, by_our_clock
from drumline.errors import DrumlineError
from drumline.run.quiet import Pulse
from drumline.run.rendezvous import Sockets
from drumline.run.usage import Usage
from drumline.runtime.keeper import now

T = TypeVar("T")
M = TypeVar("M", Usage, Pulse)

_ANSWER_SECONDS = 1.0  # that a host may take
_SILENT_SECONDS = 8.0  # a host that has nothing to say is asked every five
_STACKS_SECONDS = 30.0


class Survey:
    """Asks the hosts on which replicas run; `foreign` is called for a host that speaks of other replicas."""

    patience_seconds = _ANSWER_SECONDS

    def __init__(
        self, links: Mapping[str, Link], lives: HostReplicas, foreign: Callable[[str, Incarnation], None]
    ) -> None:
        self._links = links
        self._lives = lives
        self._foreign = foreign

    async def usage(self, *, watched: bool) -> list[Usage]:
        """What everybody uses, and what the ended have used."""
        found = []
        for link, answer in await self._ask_all({"do": "usage", "watched": watched}, UsageAnswer):
            for life, each in _by_life(answer.usage).items():
                if self._is_given(link, life):
                    found.append(by_our_clock(each, link.skew_seconds))
        return [*found, *self._lives.used()]

    async def pulses(self) -> list[Pulse]:
        """Return what all replicas have done so far."""
        answers = await self._ask_all({"do": "pulses"}, PulsesAnswer)
        return [
            each
            for link, answer in answers
            for life, each in _by_life(answer.pulses).items()
            if self._is_given(link, life)
        ]

    async def sockets(self) -> list[Sockets]:
        """Return on which ports replicas listen, and where they are connected."""
        found: list[Sockets] = []
        for link, answer in await self._ask_all({"do": "sockets"}, SocketsAnswer):
            living = {each.id.replica for each in self._lives.of(link.host.name)}
            last = {each.replica: each for each in answer.sockets if each.replica in living}.values()
            found += [Sockets(each.replica, frozenset(each.listening), frozenset(each.connected)) for each in last]
        return found

    def _is_given(self, link: Link, life: Incarnation) -> bool:
        """Whether a host was given this life; of others it has nothing to say, and the user is told."""
        if self._lives.given(life, link.host.name):
            return True
        self._foreign(link.host.name, life)
        return False

    async def _ask_all(self, message: dict[str, Any], kind: type[T]) -> list[tuple[Link, T]]:
        hosts = {each.host for each in self._lives if each.end is None and each.host}
        links = [self._links[name] for name in sorted(hosts)]
        links = [link for link in links if link.is_up and now() - link.heard_at < _SILENT_SECONDS]

        async def ask(link: Link) -> tuple[Link, T] | None:
            try:
                return link, await asyncio.wait_for(link.ask(message, kind), self.patience_seconds)
            except (TimeoutError, DrumlineError):
                return None

        return [each for each in await asyncio.gather(*map(ask, links)) if each]

    async def stacks(self, lives: Sequence[Incarnation], *, gently: bool) -> None:
        """Have the stacks of these saved; return when they are here, as far as their hosts answer."""
        known = [kept for life in lives if (kept := self._lives.get(life)) and kept.end is None]

        async def ask(host: str, theirs: Sequence[HostReplica]) -> None:
            names = [life_to_data(each.id) for each in theirs]
            message = {"do": "stacks", "attempt": theirs[0].id.attempt, "gently": gently, "lives": names}
            with suppress(TimeoutError, DrumlineError):  # who cannot be looked at has none
                await asyncio.wait_for(self._links[host].ask(message, Done), _STACKS_SECONDS)

        await asyncio.gather(*(ask(host, theirs) for host, theirs in by(known, lambda each: each.host).items()))


def _by_life(measured: Iterable[M]) -> dict[Incarnation, M]:
    """Return the last that was measured of each life; an agent measures each once."""
    return {Incarnation.of(each): each for each in measured}
