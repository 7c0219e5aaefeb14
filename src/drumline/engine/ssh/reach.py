"""Whether the hosts of a plan are there, before there is a run: all at once, and what they have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from drumline.engine.agent.answers import FactsAnswer, PortsAnswer
from drumline.engine.agent.client import Agent
from drumline.engine.agent.errors import RefusedError
from drumline.engine.local.place import named_ports
from drumline.engine.local.port_owners import PortOwner
from drumline.engine.local.resource_claim import claims_any
from drumline.engine.ssh.agents import HostFacts, open_agent, read_facts, runs_folder
from drumline.engine.ssh.assign import Room, assign, part_of, room_of
from drumline.engine.ssh.plan_options import Host, Hosts, hosts_of, with_hosts
from drumline.engine.ssh.shell import Shell, connect
from drumline.errors import DrumlineError, InputError, SeveralError
from drumline.plan.types import Plan


async def reach(plan: Plan) -> Plan:
    """The same plan, with what its hosts have; raise all that is wrong with them, each with its hint."""
    hosts = hosts_of(plan)
    known, errors = await _reach_all(plan, [_HostCheck(host, hosts) for host in hosts.all])
    wrong = list({error.message: error for error in errors}.values())  # what is wrong with all of them is told once
    if wrong:
        raise SeveralError(wrong) if len(wrong) > 1 else wrong[0]
    return with_hosts(plan, hosts.replace(all=tuple(known)))


async def _reach_all(plan: Plan, checks: Sequence[_HostCheck]) -> tuple[list[Host], list[DrumlineError]]:
    try:
        await asyncio.gather(*(check.open() for check in checks))
        ports = _wanted_ports(plan, checks)
        await asyncio.gather(*(check.check_ports(ports[check.host.name], waits=claims_any(plan)) for check in checks))
    finally:
        await asyncio.gather(*(check.close() for check in checks))
    return [check.known for check in checks], [error for check in checks for error in check.errors]


class _HostCheck:
    """An agent on a host for a few questions; what is wrong there is kept, and not raised."""

    def __init__(self, host: Host, hosts: Hosts) -> None:
        self.host = host
        self.errors: list[DrumlineError] = []
        self.facts: HostFacts | None = None
        self._hosts = hosts
        self._shell: Shell | None = None
        self._agent: Agent | None = None

    async def open(self) -> None:
        """Connect, start an agent there, and ask it what the host has."""
        try:
            self._shell = await connect(self.host.name, config=self._hosts.config)
            self._agent = await open_agent(self._shell, self._hosts, keep=True)
            question = {"do": "facts", "folder": runs_folder(self._hosts)}
            found = await self._agent.ask(question, FactsAnswer)
            self.facts = read_facts(found, self._shell.address)
        except RefusedError as error:  # trying again changes nothing: it is to be mended first
            self.errors.append(InputError(error.message, hint=error.hint))
        except DrumlineError as error:
            self.errors.append(error)

    async def check_ports(self, ports: Sequence[int], *, waits: bool) -> None:
        """See that nobody has these ports; a line that `waits` for its turn may find them with whoever is before it."""
        if not ports or self._agent is None or self.errors:
            return
        try:
            answer = await self._agent.ask({"do": "ports", "ports": ports}, PortsAnswer)
        except DrumlineError as error:
            self.errors.append(error)
            return
        holders = [each for each in answer.holders if each.port in ports]
        self.errors += [_taken(self.host.name, each) for each in holders if not (waits and each.replica)]

    async def close(self) -> None:
        """Close the connection; the agent ends with it."""
        if self._shell:
            await self._shell.close()

    @property
    def room(self) -> Room:
        """What may be used of it, as far as it is known."""
        return room_of(self.host, self.facts and Room(self.facts.cpus, self.facts.memory_bytes, len(self.facts.gpus)))

    @property
    def known(self) -> Host:
        """What the spec says of the host, and what it said itself where the spec does not."""
        room = self.room
        address = self.host.address or (self.facts.address if self.facts else None)
        return self.host.replace(address=address, cpus=room.cpus, memory_bytes=room.memory_bytes, gpus=room.gpus)


def _wanted_ports(plan: Plan, checks: Sequence[_HostCheck]) -> dict[str, list[int]]:
    """The ports that are named by host, for those who would be there if every host were as it should be."""
    insisting = plan.replace(oversubscribe=True)  # whether it fits is told elsewhere
    whose = assign(insisting, {check.host.name: check.room for check in checks})
    parts: Iterator[tuple[str, Plan]] = ((check.host.name, part_of(plan, check.host, whose)) for check in checks)
    return {name: sorted(named_ports(part).values()) for name, part in parts}


def _taken(host: str, holder: PortOwner) -> InputError:
    """That somebody has a port, and what to do about it."""
    other = f"or give {host} another `port`"
    if holder.replica:
        hint = f"wait until that is over, {other}"
    elif holder.pid:
        hint = f"end it: `ssh {host} kill {holder.pid}`, {other}"
    else:
        hint = f"`ssh {host} sudo ss -ltnp` says which; end it, {other}"
    return InputError(f"port {holder.port} of {host} is taken by {holder}", hint=hint)
