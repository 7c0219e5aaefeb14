"""Whether the hosts of a plan are there, before there is a run: all at once, and what they have."""

from __future__ import annotations

import asyncio
import json

from drumline.engine.ssh.link import FOLDER, Facts, open_hand, read_facts
from drumline.engine.ssh.place import hosts_of
from drumline.engine.ssh.shell import connect
from drumline.engine.ssh.wire import Frame
from drumline.errors import DrumlineError
from drumline.plan.hosts import Host, Hosts
from drumline.plan.types import Plan


def reach(plan: Plan) -> Plan:
    """The same plan, with what its hosts have; raise EngineError for the first that cannot be used, as it is said."""
    hosts = hosts_of(plan)
    found = asyncio.run(_reach_all(hosts))
    for each in found:
        if isinstance(each, BaseException):
            raise each
    known = [_known(host, facts) for host, facts in zip(hosts.all, found, strict=True) if isinstance(facts, Facts)]
    return plan._replace(hosts=hosts._replace(all=tuple(known)))


async def ask_facts(host: Host, hosts: Hosts) -> Facts:
    """Connect to a host, have a hand there, and ask it what it has."""
    shell = await connect(host.name, config=hosts.config)
    try:
        talk = await open_hand(shell, hosts)
        await talk.write(Frame({"do": "facts", "folder": hosts.folder or FOLDER, "id": 0}).encode())
        return read_facts(json.loads(await talk.readline()), shell)
    finally:
        await shell.close()


async def _reach_all(hosts: Hosts) -> list[Facts | BaseException]:
    async def ask(host: Host) -> Facts | DrumlineError:
        try:
            return await ask_facts(host, hosts)
        except DrumlineError as error:
            return error

    return list(await asyncio.gather(*map(ask, hosts.all)))


def _known(host: Host, facts: Facts) -> Host:
    """What the spec says of a host, and what it said itself where the spec does not."""
    return host._replace(
        address=host.address or facts.address,
        cpus=facts.cpus if host.cpus is None else host.cpus,
        memory_bytes=facts.memory_bytes if host.memory_bytes is None else host.memory_bytes,
        gpus=len(facts.gpus) if host.gpus is None else host.gpus,
    )
