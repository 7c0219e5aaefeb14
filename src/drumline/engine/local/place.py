"""Places on this machine: one address, so one port for each replica; folders below the spec or the store."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from drumline.engine.local.claim import PortClaim, claim_port
from drumline.engine.protocol import Site
from drumline.errors import EngineError, InputError
from drumline.plan.types import COMPUTING, Place, Placement, Plan, Replica, ReplicaId

HOST = "127.0.0.1"

# Below the range from which the kernel takes ports for outgoing connections, and above what services use.
FREE_PORTS = range(20_000, 32_768)


def place(plan: Plan, site: Site, keep: Sequence[str] = ()) -> tuple[Placement, dict[ReplicaId, PortClaim]]:
    """Place every replica on this machine; return the claims on the ports that were picked."""
    workdir = site.directory / plan.workdir
    if not workdir.is_dir():
        raise InputError(
            f"workdir `{plan.workdir}` is not a folder in {site.directory}",
            hint="create it, or correct `workdir`",
        )
    output_dir = site.directory / plan.output if plan.output else site.home / "runs" / plan.run / "output"
    checkpoint_dir = site.directory / plan.checkpoint if plan.checkpoint else output_dir / "checkpoint"
    data_dirs = tuple(_normal(site.directory / data.path) for data in plan.data)
    claims: dict[ReplicaId, PortClaim] = {}
    if keep:
        ports = {
            replica.id: int(address.rpartition(":")[2]) for replica, address in zip(plan.replicas, keep, strict=True)
        }
    else:
        ports = _ports(plan, claims)
    share = max(1, site.cores // max(1, len(plan.replicas_of(*COMPUTING)))) if len(plan.replicas) > 1 else None
    placement = {
        replica.id: Place(
            host=HOST,
            port=ports[replica.id],
            workdir=_normal(workdir),
            output_dir=_normal(output_dir),
            checkpoint_dir=_normal(checkpoint_dir),
            cores=_cores(replica, share),
            data_dirs=data_dirs,
        )
        for replica in plan.replicas
    }
    return placement, claims


def _ports(plan: Plan, claims: dict[ReplicaId, PortClaim]) -> dict[ReplicaId, int]:
    """Ports that the spec lists are kept; a single number is the first of a count; the rest are picked."""
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
    free = iter(FREE_PORTS)
    for replica in plan.replicas:
        if replica.port_fixed:
            continue
        if replica.port is None:
            claim = next((claim for port in free if port not in taken and (claim := claim_port(port))), None)
            if claim is None:
                raise EngineError(f"no free port for {replica.id} from {FREE_PORTS.start} to {FREE_PORTS.stop - 1}")
            taken[claim.port], claims[replica.id] = replica.id, claim
            continue
        if replica.port not in counts:
            counts[replica.port] = iter(range(replica.port, 65536))
        port = next((port for port in counts[replica.port] if port not in taken), None)
        if port is None:
            raise EngineError(f"no port left for {replica.id}", hint="give fewer replicas, or a lower `port`")
        taken[port] = replica.id
    return {replica: port for port, replica in taken.items()}


def _cores(replica: Replica, share: int | None) -> int | None:
    """What it claims, else an even share of the machine; a replica alone has it all and is left as it is."""
    return share if replica.resources.cpus is None else math.ceil(replica.resources.cpus)


def _normal(path: Path) -> str:
    """Absolute, without `.` and `..`."""
    return os.path.normpath(path.absolute())
