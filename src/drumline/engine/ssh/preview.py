"""Place replicas on hosts from the plan alone, without connecting to a host: for `render` and `check`."""

from __future__ import annotations

from collections.abc import Sequence

from drumline.engine.local.place import place
from drumline.engine.protocol import Site
from drumline.engine.ssh.assign import assign, part_of, usable_resources
from drumline.engine.ssh.host_placement import host_plan
from drumline.engine.ssh.plan_options import Hosts, host_warnings, hosts_of, require_hosts, with_hosts
from drumline.plan.types import Launch, LaunchValue, Place, Placement, Plan, ReplicaId, Shared

_HOME = "~/"  # its absolute path is known to the host only
_USUAL = f"{_HOME}.local/share/drumline"


def preview_placement(plan: Plan, site: Site) -> tuple[Placement, Sequence[str]]:
    """Return the expected placement of a plan, with paths as they are on the hosts, and warnings about the hosts."""
    hosts = hosts_of(plan)
    require_hosts(hosts)
    hosts_by_replica = preview_hosts(plan, hosts)
    base, name = hosts.folder or _USUAL, hosts.unique or plan.run
    plan = with_hosts(plan, hosts.replace(unique=name))
    placement: dict[ReplicaId, Place] = {}
    for host in hosts.all:
        own = part_of(plan, host, hosts_by_replica)
        if own.replicas:
            here, _ = place(host_plan(own, base), site, hold=False)
            placed = {each: _on_host(where, site, f"{base}/runs/{name}/project") for each, where in here.items()}
            placement |= {each: where.replace(host=host.reached_at) for each, where in placed.items()}
    return {each.id: placement[each.id] for each in plan.replicas}, tuple(host_warnings(hosts))


def preview_hosts(plan: Plan, hosts: Hosts) -> dict[ReplicaId, str]:
    """Return the host of each replica, from the resources in the plan."""
    return assign(plan, {host.name: usable_resources(host) for host in hosts.all})


def with_home_paths(launch: Launch) -> Launch:
    """Return the launch for rendering: a variable with a path in the host's home folder refers to that folder."""
    where = launch.place
    paths = {path for path in (where.output_dir, where.checkpoint_dir, *where.data_dirs) if path.startswith(_HOME)}
    env: dict[str, LaunchValue] = {
        name: Shared("", "home", "~", value[1:]) if isinstance(value, str) and value in paths else value
        for name, value in launch.env.items()
    }
    return launch.replace(env=env)


def _on_host(place: Place, site: Site, project: str) -> Place:
    """Return a place of this machine as it is on a host that has the project in the folder `project`."""

    def moved(path: str) -> str:
        below = path.removeprefix(f"{site.directory}/")
        if below.startswith(_HOME) or below == path != str(site.directory):
            return below  # in a home folder, or outside of the project
        return project if path == str(site.directory) else f"{project}/{below}"

    return place.replace(
        workdir=moved(place.workdir),
        output_dir=moved(place.output_dir),
        checkpoint_dir=moved(place.checkpoint_dir),
        data_dirs=tuple(map(moved, place.data_dirs)),
        python_dir=None,
    )
