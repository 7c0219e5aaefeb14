"""Placing a line on the hosts that answer: who goes where is worked out here, ports and GPUs are theirs to give."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from drumline.engine.protocol import MustWait
from drumline.engine.ssh.link import Facts, Link
from drumline.engine.ssh.place import Placed, merge, part, places_from_data
from drumline.engine.ssh.refusal import AwayError
from drumline.errors import EngineError, InputError
from drumline.plan.assign import Room, assign, part_of, room_of
from drumline.plan.codec import plan_to_json
from drumline.plan.types import Plan, ReplicaId
from drumline.words import listed

CONNECT_SECONDS = 20.0
PLACE_SECONDS = 60.0
_TRIES = 3  # while connections break


class HostMustWait(MustWait):
    """A host has no room yet."""

    def __init__(self, host: str, message: str) -> None:
        super().__init__(message)
        self.host = host


class Placing(NamedTuple):
    """A line, its hosts, and those of them that are not waited for."""

    plan: Plan
    links: Mapping[str, Link]
    lost: Collection[str]
    patience_seconds: float

    async def place(self, attempt: int) -> tuple[Placed, list[str]]:
        """Have everybody placed; raise HostMustWait if a host has no room yet, InputError if there will be none."""
        for _ in range(_TRIES):
            try:
                return await self._place(attempt)
            except AwayError as error:
                trouble = error
        raise trouble

    async def _place(self, attempt: int) -> tuple[Placed, list[str]]:
        facts, away = await self._answering()
        whose = self._assign(facts, away)
        remarks = [f"{self._why_not(name)}; the line goes without {name}" for name in away]
        parts = {}
        for host in sorted(set(whose.values())):  # in one order, so that no two runs wait for each other
            own = part(part_of(self.plan, self.links[host].host, whose), facts[host].base)
            try:
                answer = await self.links[host].ask({"do": "place", "plan": plan_to_json(own), "attempt": attempt})
            except MustWait as wait:
                raise HostMustWait(host, str(wait)) from None
            parts[host] = places_from_data(answer["places"])
            remarks += [f"{host}: {remark}" for remark in answer["remarks"]]
        addresses = {name: self.links[name].host.address or facts[name].address for name in parts}
        return merge(parts, addresses), remarks

    async def _answering(self) -> tuple[dict[str, Facts], list[str]]:
        """What the hosts have that answer, and who does not."""
        seconds = min(CONNECT_SECONDS, self.patience_seconds)
        await asyncio.gather(*(link.rise(0 if name in self.lost else seconds) for name, link in self.links.items()))
        facts = {name: link.facts for name, link in self.links.items() if link.is_up and link.facts}
        away = [name for name in self.links if name not in facts]
        if not facts:
            raise self.links[away[0]].trouble or EngineError(f"{away[0]} does not answer")
        return facts, away

    def _why_not(self, host: str) -> str:
        trouble = self.links[host].trouble
        return trouble.message if trouble else f"{host} does not answer"

    def _assign(self, facts: Mapping[str, Facts], away: list[str]) -> dict[ReplicaId, str]:
        rooms = {
            name: room_of(self.links[name].host, Room(each.cpus, each.memory_bytes, len(each.gpus)))
            for name, each in facts.items()
        }
        try:
            return assign(self.plan, rooms)
        except InputError as error:
            without = f", without {listed(away)}: {listed([self._why_not(name) for name in away])}" if away else ""
            raise InputError(f"{error.message}{without}", hint=error.hint) from None
