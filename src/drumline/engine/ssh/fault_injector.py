"""Inject faults into replicas on their hosts, by an agent there."""

from __future__ import annotations

import asyncio
from pathlib import Path

from drumline.engine.agent.answers import Done
from drumline.engine.agent.launches import incarnation_to_text
from drumline.engine.notes import read_notes
from drumline.engine.ssh.agents import agent_folder, open_agent, runs_folder
from drumline.engine.ssh.plan_options import hosts_of
from drumline.engine.ssh.shell import connect
from drumline.errors import EngineError
from drumline.plan.codec import plan_from_json
from drumline.plan.types import Plan, ReplicaId
from drumline.run.drill import Fault
from drumline.run.incarnation import Incarnation


class SshFaultInjector:
    """Injects faults by signals to processes on hosts."""

    def find_problem(self, plan: Plan, fault: Fault) -> str | None:
        """Return why a fault cannot be injected, None if it can: only a network of hosts cannot be cut."""
        del plan
        if fault is Fault.CUT:
            return "the network of a host cannot be cut: other programs may use it"
        return None

    def inject(self, traces: Path, replica: ReplicaId, fault: Fault) -> None:
        """Inject a fault into the incarnation with these traces; raise EngineError if it does not run."""
        asyncio.run(_request(traces, replica, fault, undo=False))

    def undo(self, traces: Path, replica: ReplicaId, fault: Fault) -> None:
        """Undo a fault; raise EngineError if the incarnation does not run."""
        asyncio.run(_request(traces, replica, fault, undo=True))


async def _request(traces: Path, replica: ReplicaId, fault: Fault, *, undo: bool) -> None:
    host = read_notes(traces).get("host")
    if host is None:
        raise EngineError(f"{replica} has no process")
    hosts = hosts_of(plan_from_json((traces.parents[2] / "plan.json").read_text("utf-8")))
    attempt, incarnation = int(traces.parent.name), int(traces.name.partition("+")[2] or 0)
    name = incarnation_to_text(Incarnation(replica, attempt, incarnation))
    own = next((each for each in hosts.all if each.name == host), None)
    if own is None:
        raise EngineError(f"{replica} has no process")
    message = {"do": "inject_fault", "incarnation": name, "fault": fault.value, "undo": undo}
    message |= {"folder": runs_folder(hosts), "run": hosts.unique, "host": agent_folder(own)}
    shell = await connect(host, config=hosts.config)
    try:
        async with await open_agent(shell, hosts) as agent:
            await agent.ask(message, Done)
    finally:
        await shell.close()
