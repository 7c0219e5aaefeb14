"""Examine all hosts concurrently: their facts, and whether they reach each other."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

from drumline.engine.agent.answers import (
    MOST_PORT,
    CallAnswer,
    ClockAnswer,
    Done,
    FactsAnswer,
    FilesAnswer,
    ListenAnswer,
    PackagesAnswer,
)
from drumline.engine.agent.client import Agent
from drumline.engine.doctor_checks import NOTE, PACKAGES, DoctorCheck, DoctorTarget
from drumline.engine.ssh import diagnosis
from drumline.engine.ssh.agents import open_agent, runs_folder
from drumline.engine.ssh.assign import HostResources, assign, usable_resources
from drumline.engine.ssh.diagnosis import HostReport
from drumline.engine.ssh.plan_options import Host, Hosts, require_hosts
from drumline.engine.ssh.shell import Shell, connect
from drumline.engine.untrusted import clean_text
from drumline.errors import DrumlineError, EngineError
from drumline.plan.codec import read_options
from drumline.plan.types import Plan

T = TypeVar("T")

_CALL_SECONDS = 5.0
_SHARED_SECONDS = 5.0
_CLOCK_READINGS = 5


def diagnose(target: DoctorTarget) -> list[DoctorCheck]:
    """Return the checks of all hosts; for a host that does not answer, only the error."""
    hosts = read_options(Hosts, target.options)
    require_hosts(hosts)
    return asyncio.run(_diagnose(hosts, target.plan))


async def _diagnose(hosts: Hosts, plan: Plan | None) -> list[DoctorCheck]:
    agents = [_HostAgent(host, hosts) for host in hosts.all]
    try:
        found = await asyncio.gather(*(_find(agent, plan) for agent in agents))
        rows = [diagnosis.check_host(each) for each in found]
        usable = [each for each in found if not each.error]
        if not usable:
            return rows
        rows.append(diagnosis.check_pythons(usable))
        if plan and (judged := diagnosis.check_packages(usable, plan)):
            rows.append(judged)
        rows += [diagnosis.check_clocks(usable), diagnosis.check_disks(usable), diagnosis.check_gpus(usable, plan)]
        there = [agent for agent, each in zip(agents, found, strict=True) if not each.error]
        rows.append(await _ports(there, usable, plan))
        rows.append(diagnosis.check_shared(hosts, await _shared(there, hosts.shared) if hosts.shared else ()))
        if plan:
            rows.append(diagnosis.check_room(usable, plan))
        return rows
    finally:
        await asyncio.gather(*(agent.close() for agent in agents))


class _HostAgent:
    """An agent on a host that answers requests, one after the other."""

    def __init__(self, host: Host, hosts: Hosts) -> None:
        self.host = host
        self._hosts = hosts
        self._shell: Shell | None = None
        self._agent: Agent | None = None

    async def open(self) -> tuple[str, FactsAnswer]:
        """Connect to the host and start an agent there; return its address and facts."""
        self._shell = await connect(self.host.name, config=self._hosts.config)
        self._agent = await open_agent(self._shell, self._hosts)
        return self._shell.address, await self.ask("facts", FactsAnswer, folder=runs_folder(self._hosts))

    async def ask(self, do: str, kind: type[T], **arguments: object) -> T:
        """Return the answer to the request `do` with these arguments; raise EngineError for an error or no answer."""
        assert self._agent
        return await self._agent.ask({"do": do, **arguments}, kind)

    async def close(self) -> None:
        """Close the connection; the agent ends with it."""
        if self._agent:
            self._agent.close()
        if self._shell:
            await self._shell.close()


async def _find(agent: _HostAgent, plan: Plan | None) -> HostReport:
    """Return the report of one host."""
    packages = PACKAGES[plan.framework] if plan else ()
    try:
        address, facts = await agent.open()
        installed: Mapping[str, str] = {}
        if packages:
            installed = (
                await agent.ask("packages", PackagesAnswer, python=_named_python(plan), packages=packages)
            ).packages
        skew = await _skew(agent)
    except DrumlineError as error:
        return HostReport(agent.host, error.message, error.hint)
    return HostReport(
        agent.host,
        address=agent.host.address or address,
        version=facts.python,
        python=facts.executable,
        packages={name: clean_text(installed[name], 100) for name in packages if name in installed},
        folder=facts.base,
        free_bytes=facts.free_bytes,
        is_writable=facts.is_writable,
        resources=HostResources(facts.cpus, facts.memory_bytes, len(facts.gpus)),
        skew_seconds=skew,
    )


def _named_python(plan: Plan | None) -> str | None:
    """Return the path of the Python in the chief's command; None if the command has no such path."""
    chief = next((each for each in plan.replicas if each.id == plan.chief), None) if plan else None
    if chief is None or "/" not in chief.argv[0] or "python" not in chief.argv[0].rpartition("/")[2]:
        return None
    return chief.argv[0]


async def _skew(agent: _HostAgent) -> float:
    """Return the seconds by which the host's clock is ahead of this machine's, from the quickest of several answers."""
    readings: list[tuple[float, float]] = []
    for _ in range(_CLOCK_READINGS):
        before = time.time()
        there = (await agent.ask("clock", ClockAnswer)).time
        after = time.time()
        readings.append((after - before, there - (before + after) / 2))
    return min(readings)[1]


async def _ports(agents: Sequence[_HostAgent], found: Sequence[HostReport], plan: Plan | None) -> DoctorCheck:
    """Listen on every host on the ports of its replicas, and connect from every host to all of them."""
    wanted = _wanted_ports(found, plan)
    try:
        listening = await asyncio.gather(
            *(
                agent.ask("listen", ListenAnswer, name=agent.host.name, ports=wanted[agent.host.name])
                for agent in agents
            )
        )
        peers = [
            (each.name, each.address, port)
            for each, answer in zip(found, listening, strict=True)
            for port in answer.ports[: len(wanted[each.name]) or 1]
            if 0 < port <= MOST_PORT
        ]
        called = await asyncio.gather(
            *(agent.ask("call", CallAnswer, peers=peers, seconds=_CALL_SECONDS) for agent in agents)
        )
    except EngineError as error:
        return DoctorCheck("ports", NOTE, error.message)
    taken = {
        agent.host.name: [port for port in answer.taken if port in (wanted[agent.host.name] or (0,))]
        for agent, answer in zip(agents, listening, strict=True)
    }
    troubles = {
        agent.host.name: [
            f"{name} at {address}:{port} ({clean_text(trouble, 200)})"
            for (name, address, port), trouble in zip(peers, answer.troubles, strict=False)
            if trouble
        ]
        for agent, answer in zip(agents, called, strict=True)
    }
    return diagnosis.check_ports(taken, troubles, len(peers) * len(agents))


def _wanted_ports(found: Sequence[HostReport], plan: Plan | None) -> dict[str, list[int]]:
    """Return the fixed ports by host: one for each replica that the host would have; none without a `port`."""
    shares = dict.fromkeys((each.name for each in found), 1)
    if plan:
        unlimited = plan.replace(oversubscribe=True)  # `check_room` checks whether the replicas fit
        usable = {each.name: usable_resources(each.host, each.resources) for each in found}
        where = list(assign(unlimited, usable).values())
        shares = {name: where.count(name) for name in shares}
    return {
        each.name: [each.host.port + more for more in range(max(1, shares[each.name]))] if each.host.port else []
        for each in found
    }


async def _shared(agents: Sequence[_HostAgent], folder: str) -> list[str]:
    """Write a file on every host and read all of them on every host; return problems."""
    stem = f"{folder}/.drumline-doctor-{secrets.token_hex(6)}"
    files = {agent.host.name: f"{stem}-{number}" for number, agent in enumerate(agents)}
    troubles = []
    for agent in agents:
        try:
            await agent.ask("write", Done, path=files[agent.host.name], text=agent.host.name)
        except EngineError as error:
            troubles.append(f"{agent.host.name} cannot write there ({error.message.rpartition(': ')[2].lower()})")
            files.pop(agent.host.name)
    asked = [agent.ask("read", FilesAnswer, paths=list(files.values()), seconds=_SHARED_SECONDS) for agent in agents]
    for agent, answer in zip(agents, await asyncio.gather(*asked, return_exceptions=True), strict=True):
        if isinstance(answer, BaseException):
            troubles.append(f"{agent.host.name} cannot read there")
            continue
        unseen = [name for name, path in files.items() if answer.found.get(path) != name]
        if unseen:
            troubles.append(f"{agent.host.name} does not see what {' and '.join(unseen[:3])} wrote")
    await asyncio.gather(
        *(agent.ask("remove", Done, paths=list(files.values())) for agent in agents), return_exceptions=True
    )
    return troubles
