"""Placement on this machine: a port for each replica, or an address in a private network; the folders of the run."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from drumline.engine.local.planned import local_plan
from drumline.engine.ports import PortClaim, claim_port
from drumline.engine.protocol import Site
from drumline.errors import EngineError, InputError
from drumline.plan.types import COMPUTING, Place, Placement, Plan, Replica, ReplicaId
from drumline.runtime.private import read_regular

HOST = "127.0.0.1"

# Above the ports of services, and outside the kernel's range for outgoing connections.
_PICKED_PORTS = (range(20_000, 65_536), range(10_000, 20_000))
# In a private network each replica has its own address; a bridge with more links is too slow.
PRIVATE_PORT = 2222
MOST_IN_PRIVATE = 512
_RPC = re.compile(rb"\binit_rpc\b|\bdistributed\.rpc\b")
_LONGEST_SCRIPT = 1 << 20  # bytes
_BETWEEN_WORDS = re.compile(r"[\s'\";&|()]+")
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def place(
    plan: Plan, site: Site, keep: Sequence[str] = (), *, hold: bool = True
) -> tuple[Placement, dict[ReplicaId, PortClaim]]:
    """Place every replica on this machine; also return the claims on the chosen ports, closed unless `hold`.

    `keep` are the addresses of an earlier placement, in the order of the plan, which are used again.
    """
    base = place_helper(plan, site)
    hosts = dict.fromkeys((replica.id for replica in plan.replicas), HOST)
    claims: dict[ReplicaId, PortClaim] = {}
    if keep:
        known = {replica.id: address.rpartition(":") for replica, address in zip(plan.replicas, keep, strict=True)}
        hosts = {replica: host for replica, (host, _, _) in known.items()}
        ports = {replica: int(port) for replica, (_, _, port) in known.items()}
    elif local_plan(plan).private_network:
        hosts = _private_hosts(plan)
        ports = {replica.id: replica.port or PRIVATE_PORT for replica in plan.replicas}
    else:
        ports = named_ports(plan)
        claims = _claim_ports(plan, ports, hold=hold)
        ports |= {replica: claim.port for replica, claim in claims.items()}
    cores = _divide_cores(plan, site.cores, base.workdir)
    placement = {
        replica.id: base.replace(host=hosts[replica.id], port=ports[replica.id], cores=cores[replica.id])
        for replica in plan.replicas
    }
    return placement, claims


def place_helper(plan: Plan, site: Site) -> Place:
    """Return the place of a helper, which needs folders and no address."""
    workdir = _folder(site, plan.workdir)
    if not os.path.isdir(workdir):  # noqa: PTH112  # Path.is_dir may raise
        raise InputError(
            f"workdir `{plan.workdir}` is not a folder in {site.directory}",
            hint="create it, or correct `workdir`",
        )
    output_dir = _folder(site, plan.output or str(site.home / "runs" / plan.run / "output"))
    return Place(
        host=HOST,
        port=0,
        workdir=workdir,
        output_dir=output_dir,
        checkpoint_dir=_folder(site, plan.checkpoint or f"{output_dir}/checkpoint"),
        data_dirs=tuple(_folder(site, data.path) for data in plan.data),
        python_dir=site.python_dir,
    )


def _private_hosts(plan: Plan) -> dict[ReplicaId, str]:
    """Return an address for each replica, by its position in the plan; separate networks use the same addresses."""
    if len(plan.replicas) > MOST_IN_PRIVATE:
        raise InputError(
            f"a private network can have {MOST_IN_PRIVATE} replicas, and this run has {len(plan.replicas):,}",
            hint="leave out `network: private`",
        )
    numbers = enumerate(plan.replicas, start=1)
    return {replica.id: f"10.77.{number >> 8}.{number & 255}" for number, replica in numbers}


def named_ports(plan: Plan) -> dict[ReplicaId, int]:
    """Return the ports that the spec names: a list gives one to each replica, a single number is the first of them."""
    taken: dict[int, ReplicaId] = {}
    for replica in plan.replicas:
        if replica.port is not None and replica.port_fixed:
            if replica.port in taken:
                raise InputError(
                    f"port {replica.port} is given to {taken[replica.port]} and to {replica.id} on one machine",
                    hint=f"give `roles.{replica.id.role}.port` other ports",
                )
            taken[replica.port] = replica.id
    counts: dict[int, Iterator[int]] = {}
    for replica in plan.replicas:
        if replica.port is not None and not replica.port_fixed:
            count = counts.setdefault(replica.port, iter(range(replica.port, 65_536)))
            port = next((port for port in count if port not in taken), None)
            if port is None:
                raise InputError(
                    f"no port is left for {replica.id}: they count up from {replica.port} to 65535",
                    hint="give a lower `port`",
                )
            taken[port] = replica.id
    return {replica: port for port, replica in taken.items()}


def _claim_ports(plan: Plan, named: Mapping[ReplicaId, int], *, hold: bool) -> dict[ReplicaId, PortClaim]:
    """Claim a free port for every replica without one; unless `hold`, close the claims again."""
    claims: dict[ReplicaId, PortClaim] = {}
    candidates = _candidates(named)
    for replica in plan.replicas:
        if replica.id in named:
            continue
        claim = next((claim for port in candidates if (claim := claim_port(port))), None)
        if claim is None:
            for claimed in claims.values():
                claimed.close()
            raise EngineError(f"no free port is left on this machine for {replica.id}", hint="give it a `port`")
        if not hold:
            claim.close()
        claims[replica.id] = claim
    return claims


def claim_extra_port(plan: Plan) -> PortClaim:
    """Claim a free port that no replica of the plan needs in any attempt."""
    for port in _candidates(named_ports(plan)):
        if claim := claim_port(port):
            return claim
    raise EngineError("no free port is left on this machine")


def _candidates(named: Mapping[ReplicaId, int]) -> Iterator[int]:
    """Yield the ports that may be chosen; those that the spec names are left out."""
    taken, kernels = frozenset(named.values()), _ephemeral_ports()
    return (port for ports in _PICKED_PORTS for port in ports if port not in taken and port not in kernels)


def _ephemeral_ports() -> range:
    try:
        first, last = map(int, _EPHEMERAL_RANGE.read_text().split())
    except (OSError, ValueError):
        first, last = 32_768, 60_999  # Linux's default
    return range(first, last + 1)


def _divide_cores(plan: Plan, cores: int, workdir: str) -> dict[ReplicaId, int | None]:
    """Return how many threads each replica may start: as many as CPUs that it claims, else a share of the other CPUs.

    Replicas that do the same work share the CPUs evenly. Replicas that do other work are not counted: a parameter
    server waits while workers compute, or computes while they wait. None is no limit: for a single replica, and for
    replicas that use torch's RPC.
    """
    computing = plan.replicas_of(*COMPUTING)
    left = cores - sum(each.resources.cpus or 0 for each in computing)
    alike = Counter(_work(plan, each) for each in computing if each.resources.cpus is None)
    beside = max(1, cores // max(1, len(computing)))  # for servers and evaluators
    calling = _calling_rpc(plan, workdir)
    shares: dict[ReplicaId, int | None] = {}
    for replica in plan.replicas:
        if replica.resources.cpus is not None:
            shares[replica.id] = math.ceil(replica.resources.cpus)
        elif len(plan.replicas) == 1 or replica.argv in calling:
            shares[replica.id] = None
        elif replica.id.role in COMPUTING:
            shares[replica.id] = max(1, int(left // alike[_work(plan, replica)]))
        else:
            shares[replica.id] = beside
    return shares


def _calling_rpc(plan: Plan, workdir: str) -> set[tuple[str, ...]]:
    """Return the commands with a script that uses torch's RPC: then one replica computes while others wait.

    Such replicas often run the same command, and their rank decides what they do.
    """
    if plan.framework not in ("torch", "plain"):
        return set()
    commands = {replica.argv for replica in plan.replicas}
    return {argv for argv in commands if any(_names_rpc(Path(workdir, script)) for script in _scripts(argv))}


def _scripts(argv: tuple[str, ...]) -> Iterator[str]:
    """Yield the words of a command that end in `.py`, including those within a shell command."""
    return (word for word in _BETWEEN_WORDS.split(" ".join(argv)) if word.endswith(".py"))


def _names_rpc(script: Path) -> bool:
    try:
        return bool(_RPC.search(read_regular(script, _LONGEST_SCRIPT)))
    except (OSError, ValueError):
        return False


def _work(plan: Plan, replica: Replica) -> tuple[str, ...]:
    """Return a key that is equal for replicas that do the same work.

    With TensorFlow and JAX the chief and all workers train, whatever their arguments.
    """
    return replica.argv if plan.framework in ("torch", "plain") else ()


def _folder(site: Site, path: str) -> str:
    """Return a path of the spec as an absolute path without `.` and `..`."""
    return os.path.normpath((site.directory / path).absolute())
