"""The placement of an attempt on hosts: the plan that each host receives, and the places in the hosts' answers."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from drumline.engine.local.planned import for_local
from drumline.engine.ssh.plan_options import hosts_of
from drumline.plan.codec import from_data, to_data
from drumline.plan.types import Data, Place, Placement, Plan, ReplicaId
from drumline.record import Record
from drumline.run.traces import PLACES
from drumline.runtime.private import make_folder, write_file


class HostPlacement(Record):
    """The host of each replica of an attempt, as named for ssh, and its place there."""

    hosts: Mapping[ReplicaId, str]
    places: Placement


def host_plan(plan: Plan, base: str) -> Plan:
    """Return the plan for the local engine of one host; `base` is the host's folder of all runs.

    The name of the run in it is unique among the runs of all launching machines.
    """
    hosts = hosts_of(plan)
    output = plan.output or f"{hosts.shared or base}/runs/{hosts.unique}/output"
    data = tuple(_lasting(plan, each, hosts.shared or base) for each in plan.data)
    own = for_local(plan).replace(run=f"{plan.run}.{hosts.unique}", engine="local", data=data)
    if hosts.shared is None:
        return own.replace(output=output)
    # Paths in the spec are relative to the shared folder, since each host has its own project folder.
    checkpoint = plan.checkpoint and _of_project(plan, hosts.shared, plan.checkpoint)
    return own.replace(output=_of_project(plan, hosts.shared, output), checkpoint=checkpoint)


def _of_project(plan: Plan, base: str, path: str) -> str:
    """Return a path of the spec in a folder of this project that is kept between runs."""
    return posixpath.normpath(posixpath.join(base, plan.project.replace("/", "_"), path))


def _lasting(plan: Plan, data: Data, base: str) -> Data:
    """Return data with a path that is kept between runs, if it is prepared once for all runs."""
    is_prepared = data.variable in {each.variable for each in plan.preparations}
    if not is_prepared or data.path.startswith("/"):
        return data
    return data.replace(path=_of_project(plan, f"{base}/data", data.path))


def merge_placements(parts: Mapping[str, Mapping[ReplicaId, Place]], addresses: Mapping[str, str]) -> HostPlacement:
    """Return the placement of all replicas from the answers of the hosts."""
    hosts = {replica: host for host, places in parts.items() for replica in places}
    found = {replica: place for places in parts.values() for replica, place in places.items()}
    return HostPlacement(hosts, {each: place.replace(host=addresses[hosts[each]]) for each, place in found.items()})


def require_asked(places: Mapping[str, Place], asked: Plan) -> dict[ReplicaId, Place]:
    """Return the places of exactly the replicas that a host was requested to place; raise ValueError for others."""
    wanted = {str(replica.id): replica.id for replica in asked.replicas}
    if other := places.keys() - wanted.keys():
        raise ValueError(f"a place for {min(other)[:50]!r}, which was not requested")
    if missing := wanted.keys() - places.keys():
        raise ValueError(f"no place for {min(missing)}")
    for name, place in places.items():
        if len(place.data_dirs) != len(asked.data):
            raise ValueError(f"{len(place.data_dirs)} data folders for {name}")
    return {wanted[name]: place for name, place in places.items()}


def _places_from_data(data: Mapping[str, Any]) -> dict[ReplicaId, Place]:
    """Read places that this machine has stored."""
    return {ReplicaId.parse(name): from_data(Place, place) for name, place in data.items()}


def write_placement(run_dir: Path, attempt: int, placed: HostPlacement) -> None:
    """Store the placement of an attempt: the next supervisor needs it when a host does not answer."""
    path = run_dir / "attempts" / str(attempt) / PLACES
    make_folder(path.parent)
    data = {str(name): [placed.hosts[name], to_data(place)] for name, place in placed.places.items()}
    write_file(path, json.dumps(data).encode())


def read_placement(run_dir: Path, attempt: int) -> HostPlacement | None:
    """Return the placement of an attempt; None if it was not placed."""
    with suppress(FileNotFoundError, ValueError):
        data = json.loads((run_dir / "attempts" / str(attempt) / PLACES).read_text())
        hosts = {ReplicaId.parse(name): str(host) for name, (host, _) in data.items()}
        return HostPlacement(hosts, _places_from_data({name: place for name, (_, place) in data.items()}))
    return None
