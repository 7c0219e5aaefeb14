"""AttemptPlacements on hosts: who goes where, what each host is asked for, and what that makes of the line."""

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
    """Where each replica of an attempt is: its host, as ssh knows it, and its place there."""

    hosts: Mapping[ReplicaId, str]
    places: Placement


def host_plan(plan: Plan, base: str) -> Plan:
    """The plan of one host, which has its runs in this folder, as its own local engine is to know it.

    Its name is one that no other launching machine gives.
    """
    hosts = hosts_of(plan)
    output = plan.output or f"{hosts.shared or base}/runs/{hosts.unique}/output"
    data = tuple(_lasting(plan, each, hosts.shared or base) for each in plan.data)
    own = for_local(plan).replace(run=f"{plan.run}.{hosts.unique}", engine="local", data=data)
    if hosts.shared is None:
        return own.replace(output=output)
    # What the spec says of folders is seen from the one that they share: the project's is each host's own.
    checkpoint = plan.checkpoint and _of_project(plan, hosts.shared, plan.checkpoint)
    return own.replace(output=_of_project(plan, hosts.shared, output), checkpoint=checkpoint)


def _of_project(plan: Plan, base: str, path: str) -> str:
    """A path of the spec, in a folder that lasts and is for this project alone."""
    return posixpath.normpath(posixpath.join(base, plan.project.replace("/", "_"), path))


def _lasting(plan: Plan, data: Data, base: str) -> Data:
    """What is prepared once is not of a run's own folder, where the next run would not find it."""
    is_prepared = data.variable in {each.variable for each in plan.preparations}
    if not is_prepared or data.path.startswith("/"):
        return data
    return data.replace(path=_of_project(plan, f"{base}/data", data.path))


def merge_placements(parts: Mapping[str, Mapping[ReplicaId, Place]], addresses: Mapping[str, str]) -> HostPlacement:
    """The line as all its hosts have placed it."""
    hosts = {replica: host for host, places in parts.items() for replica in places}
    found = {replica: place for places in parts.values() for replica, place in places.items()}
    return HostPlacement(hosts, {each: place.replace(host=addresses[hosts[each]]) for each, place in found.items()})


def require_asked(places: Mapping[str, Place], asked: Plan) -> dict[ReplicaId, Place]:
    """Return the places of exactly the replicas that a host was asked about; raise ValueError for others."""
    wanted = {str(replica.id): replica.id for replica in asked.replicas}
    if other := places.keys() - wanted.keys():
        raise ValueError(f"a place for {min(other)[:50]!r}, which it was not asked about")
    if missing := wanted.keys() - places.keys():
        raise ValueError(f"no place for {min(missing)}")
    for name, place in places.items():
        if len(place.data_dirs) != len(asked.data):
            raise ValueError(f"{len(place.data_dirs)} data folders for {name}")
    return {wanted[name]: place for name, place in places.items()}


def _places_from_data(data: Mapping[str, Any]) -> dict[ReplicaId, Place]:
    """Read places that this machine has written."""
    return {ReplicaId.parse(name): from_data(Place, place) for name, place in data.items()}


def write_placement(run_dir: Path, attempt: int, placed: HostPlacement) -> None:
    """Keep where an attempt is, for whoever takes the run up while a host does not answer."""
    path = run_dir / "attempts" / str(attempt) / PLACES
    make_folder(path.parent)
    data = {str(name): [placed.hosts[name], to_data(place)] for name, place in placed.places.items()}
    write_file(path, json.dumps(data).encode())


def read_placement(run_dir: Path, attempt: int) -> HostPlacement | None:
    """Where an attempt is; None if nobody has placed it."""
    with suppress(FileNotFoundError, ValueError):
        data = json.loads((run_dir / "attempts" / str(attempt) / PLACES).read_text())
        hosts = {ReplicaId.parse(name): str(host) for name, (host, _) in data.items()}
        return HostPlacement(hosts, _places_from_data({name: place for name, (_, place) in data.items()}))
    return None
