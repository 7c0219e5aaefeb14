"""Place replicas on the hosts that answer: this machine assigns hosts; each host chooses ports and GPUs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import MappingProxyType

from drumline.engine.agent.answers import PlaceAnswer
from drumline.engine.agent.errors import MalformedError, UnreachableError
from drumline.engine.protocol import MustWait
from drumline.engine.ssh.agents import HostFacts
from drumline.engine.ssh.assign import HostResources, assign, part_of, usable_resources
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.host_placement import HostPlacement, host_plan, merge_placements, require_asked
from drumline.engine.untrusted import clean_text
from drumline.errors import EngineError, InputError
from drumline.plan.codec import plan_to_json
from drumline.plan.types import Plan, ReplicaId
from drumline.record import Record
from drumline.words import listed

CONNECT_SECONDS = 20.0
PLACE_SECONDS = 60.0
_TRIES = 3  # while connections break


class HostMustWait(MustWait):
    """A host has no free resources yet, or has not run the helpers that it missed; `coming`: it will run them."""

    def __init__(self, host: str, message: str, *, coming: bool = False) -> None:
        super().__init__(message)
        self.host = host
        self.coming = coming


class PlacementRequest(Record):
    """The plan to place, the connections to its hosts, and the `lost` hosts, which are not waited for.

    `unready` has a message for each host that has not run all helpers. A helper runs there once the host connects,
    unless one has `failed` there.
    """

    plan: Plan
    connections: Mapping[str, HostConnection]
    lost: Collection[str]
    patience_seconds: float
    unready: Mapping[str, str] = MappingProxyType({})
    failed: Collection[str] = ()

    @property
    def waits_for(self) -> str:
        """Return a message that names the hosts that have not answered."""
        silent = self._silent
        why = [connection.trouble.message for connection in silent if connection.trouble]
        words = f" ({listed(why)})" if why else ""
        names = listed([connection.host.name for connection in silent])
        return f"waits for {names} to answer{words}" if silent else "waits for places on its hosts"

    @property
    def is_hindered(self) -> bool:
        """Return whether a host could not be reached, and is tried again."""
        return any(connection.is_hindered for connection in self._silent)

    @property
    def is_slow(self) -> bool:
        """Return whether all hosts are connected, so that only their answers are missing."""
        return not self._silent

    @property
    def _silent(self) -> list[HostConnection]:
        """Return the connections that are waited for and not open yet."""
        return [
            connection
            for name, connection in self.connections.items()
            if name not in self.lost and not (connection.is_up or connection.shell)
        ]

    async def place(self, attempt: int) -> tuple[HostPlacement, list[str]]:
        """Place all replicas; raise HostMustWait if a host has no free resources yet, InputError if it never will."""
        for _ in range(_TRIES):
            try:
                return await self._place(attempt)
            except UnreachableError as error:
                trouble = error
        raise trouble

    async def _place(self, attempt: int) -> tuple[HostPlacement, list[str]]:
        facts, away = await self._answering()
        hosts = self._assign(facts, away)
        warnings = [f"{self._why_not(name)}; the run starts without {name}" for name in away]
        parts = {}
        for host in sorted(set(hosts.values())):  # always in the same order, so that no two runs wait for each other
            own = host_plan(part_of(self.plan, self.connections[host].host, hosts), facts[host].base)
            question = {"do": "place", "plan": plan_to_json(own), "attempt": attempt}
            try:
                answer = await asyncio.wait_for(self.connections[host].ask(question, PlaceAnswer), PLACE_SECONDS)
                parts[host] = require_asked(answer.places, own)
            except MustWait as wait:
                raise HostMustWait(host, str(wait)) from None
            except TimeoutError:
                raise EngineError(f"placement on {host} timed out after {PLACE_SECONDS:g} s") from None
            except ValueError as reason:
                error = MalformedError(host, reason)
                self.connections[host].refuse(error)
                raise error from None
            warnings += [f"{host}: {clean_text(warning)}" for warning in answer.warnings]
        addresses = {name: self.connections[name].host.address or facts[name].address for name in parts}
        return merge_placements(parts, addresses), warnings

    async def _answering(self) -> tuple[dict[str, HostFacts], list[str]]:
        """Return the facts of each host that answers, and the names of the others."""
        seconds = min(CONNECT_SECONDS, self.patience_seconds)
        await asyncio.gather(
            *(
                connection.wait_connected(0 if name in self.lost else seconds)
                for name, connection in self.connections.items()
            )
        )
        answered = {
            name: connection.facts
            for name, connection in self.connections.items()
            if connection.is_up and connection.facts
        }
        facts = {name: each for name, each in answered.items() if name not in self.unready}
        away = [name for name in self.connections if name not in facts]
        if not answered:
            raise self.connections[away[0]].trouble or EngineError(f"{away[0]} does not answer")
        return facts, away

    def _why_not(self, host: str) -> str:
        """Return why a host is not used."""
        connection = self.connections[host]
        if connection.is_up and host in self.unready:
            return self.unready[host]
        return connection.trouble.message if connection.trouble else f"{host} does not answer"

    def _assign(self, facts: Mapping[str, HostFacts], away: list[str]) -> dict[ReplicaId, str]:
        resources = {
            name: usable_resources(
                self.connections[name].host, HostResources(each.cpus, each.memory_bytes, len(each.gpus))
            )
            for name, each in facts.items()
        }
        try:
            return assign(self.plan, resources)
        except InputError as error:
            coming = [name for name in self.unready if self.connections[name].is_up and name not in self.failed]
            if coming:
                raise HostMustWait(coming[0], f"waits, as {self.unready[coming[0]]}", coming=True) from None
            without = f", without {listed(away)}: {listed([self._why_not(name) for name in away])}" if away else ""
            raise InputError(f"{error.message}{without}", hint=error.hint) from None
