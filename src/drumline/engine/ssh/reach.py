"""Check all hosts of a plan concurrently, before a run is created."""

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
from drumline.engine.ssh.assign import HostResources, assign, part_of, usable_resources
from drumline.engine.ssh.plan_options import Host, Hosts, hosts_of, with_hosts
from drumline.engine.ssh.shell import Shell, connect
from drumline.errors import DrumlineError, InputError, SeveralError
from drumline.plan.types import Plan


async def reach(plan: Plan) -> Plan:
    """Return the plan with the resources of its hosts; raise the problems of all hosts, each with its hint."""
    hosts = hosts_of(plan)
    known, errors = await _reach_all(plan, [_HostCheck(host, hosts) for host in hosts.all])
    wrong = list({error.message: error for error in errors}.values())  # a problem of several hosts is reported once
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
    """An agent on a host for a few requests; collects errors instead of raising them."""

    def __init__(self, host: Host, hosts: Hosts) -> None:
        self.host = host
        self.errors: list[DrumlineError] = []
        self.facts: HostFacts | None = None
        self._hosts = hosts
        self._shell: Shell | None = None
        self._agent: Agent | None = None

    async def open(self) -> None:
        """Connect, start an agent there, and request the facts of the host."""
        try:
            self._shell = await connect(self.host.name, config=self._hosts.config)
            self._agent = await open_agent(self._shell, self._hosts, keep=True)
            question = {"do": "facts", "folder": runs_folder(self._hosts)}
            found = await self._agent.ask(question, FactsAnswer)
            self.facts = read_facts(found, self._shell.address)
        except RefusedError as error:  # a retry does not help
            self.errors.append(InputError(error.message, hint=error.hint))
        except DrumlineError as error:
            self.errors.append(error)

    async def check_ports(self, ports: Sequence[int], *, waits: bool) -> None:
        """Add an error for each of these ports that is taken.

        With `waits`, a port of another run is no error: this run waits until it is free.
        """
        if not ports or self._agent is None or self.errors:
            return
        try:
            answer = await self._agent.ask({"do": "ports", "ports": ports}, PortsAnswer)
        except DrumlineError as error:
            self.errors.append(error)
            return
        owners = [each for each in answer.owners if each.port in ports]
        self.errors += [_taken(self.host.name, each) for each in owners if not (waits and each.replica)]

    async def close(self) -> None:
        """Close the connection; the agent ends with it."""
        if self._shell:
            await self._shell.close()

    @property
    def resources(self) -> HostResources:
        """Return the resources of the host that may be used, as far as they are known."""
        facts = self.facts
        found = facts and HostResources(facts.cpus, facts.memory_bytes, len(facts.gpus))
        return usable_resources(self.host, found)

    @property
    def known(self) -> Host:
        """Return the host with the values that the spec sets, and with the host's answer for all others."""
        own = self.resources
        address = self.host.address or (self.facts.address if self.facts else None)
        return self.host.replace(address=address, cpus=own.cpus, memory_bytes=own.memory_bytes, gpus=own.gpus)


def _wanted_ports(plan: Plan, checks: Sequence[_HostCheck]) -> dict[str, list[int]]:
    """Return the fixed ports by host, for the replicas that it would have if every host answered."""
    unlimited = plan.replace(oversubscribe=True)  # the placement checks whether the replicas fit
    hosts = assign(unlimited, {check.host.name: check.resources for check in checks})
    parts: Iterator[tuple[str, Plan]] = ((check.host.name, part_of(plan, check.host, hosts)) for check in checks)
    return {name: sorted(named_ports(part).values()) for name, part in parts}


def _taken(host: str, owner: PortOwner) -> InputError:
    """Return the error for a port that is taken, with a hint."""
    other = f"or give {host} another `port`"
    if owner.replica:
        hint = f"wait until that run is over, {other}"
    elif owner.pid:
        hint = f"end it: `ssh {host} kill {owner.pid}`, {other}"
    else:
        hint = f"`ssh {host} sudo ss -ltnp` shows it; end it, {other}"
    return InputError(f"port {owner.port} of {host} is taken by {owner}", hint=hint)
