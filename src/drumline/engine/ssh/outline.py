"""Where a line would be, before anybody is asked: for whoever only looks at it."""

from __future__ import annotations

from collections.abc import Sequence

from drumline.engine.local.place import place
from drumline.engine.protocol import Site
from drumline.engine.ssh.place import hosts_of
from drumline.plan.assign import assign, part_of, room_of
from drumline.plan.hosts import remarks, require_hosts
from drumline.plan.types import Place, Placement, Plan, ReplicaId


def outline(plan: Plan, site: Site) -> tuple[Placement, Sequence[str]]:
    """Place everybody by what the plan says of the hosts."""
    hosts = hosts_of(plan)
    require_hosts(hosts)
    whose = assign(plan, {host.name: room_of(host) for host in hosts.all})
    placement: dict[ReplicaId, Place] = {}
    for host in hosts.all:
        own = part_of(plan, host, whose)
        if own.replicas:
            here, _ = place(own, site, hold=False)
            placement |= {name: each._replace(host=host.reached_at, python_dir=None) for name, each in here.items()}
    return {each.id: placement[each.id] for each in plan.replicas}, tuple(remarks(hosts))
