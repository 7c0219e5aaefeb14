"""Agents on the hosts of a run: how and in which folders they are started, and the facts that they report."""

from __future__ import annotations

import re
from hashlib import sha256

from drumline.engine.agent.answers import FactsAnswer
from drumline.engine.agent.bootstrap import Machine, Setup, start_agent
from drumline.engine.agent.client import Agent
from drumline.engine.ssh.plan_options import Host, Hosts
from drumline.record import Record

FOLDER = "~/.local/share/drumline"  # the folder of all runs on a host, unless the spec names another
_PACKAGES = "~/.cache/drumline/hosts"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


class HostFacts(Record):
    """The resources and the address of a host."""

    base: str  # the folder of all runs on the host
    boot: str
    python: str
    cpus: float
    memory_bytes: int
    gpus: tuple[str, ...]
    address: str
    skew_seconds: float = 0.0  # by which its clock is ahead of this machine's


class Route(Record):
    """How agents are started on a connected host, and the folder of all runs there."""

    machine: Machine
    base: str


def read_facts(found: FactsAnswer, address: str, skew_seconds: float = 0.0) -> HostFacts:
    """Return the facts in an agent's answer, with the address at which this machine reached its host."""
    return HostFacts(
        found.base,
        found.boot,
        found.python,
        found.cpus,
        found.memory_bytes,
        found.gpus,
        address=address,
        skew_seconds=skew_seconds,
    )


def runs_folder(hosts: Hosts) -> str:
    """Return the folder of all runs on a host."""
    return hosts.folder or FOLDER


def agent_folder(host: Host) -> str:
    """Return the name of a host's own folder in the folder of a run: hosts may share their home folders."""
    if _PLAIN_NAME.fullmatch(host.name):
        return host.name
    return f"host-{sha256(host.name.encode()).hexdigest()[:16]}"


def packages_folder(hosts: Hosts) -> str:
    """Return the folder of agent packages on a host."""
    return f"{hosts.folder}/hosts" if hosts.folder else _PACKAGES


async def open_agent(machine: Machine, hosts: Hosts, *, keep: bool = False, counts: bool = False) -> Agent:
    """Start an agent as `start_agent` does, with the Python and in the folder that the spec names."""
    return await start_agent(machine, _setup(hosts), keep=keep, counts=counts)


def _setup(hosts: Hosts) -> Setup:
    """Return how agents are started on these hosts."""
    return Setup(
        hosts.python,
        packages_folder(hosts),
        python_hint="name another one that it has: `ssh: {python: PATH}`",
        folder_hint="make room there, or name another folder: `ssh: {folder: PATH}`",
    )
