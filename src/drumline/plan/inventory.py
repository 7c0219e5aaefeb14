"""The hosts that a spec names, and what is impossible about them."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from drumline.plan.hosts import Host, Hosts
from drumline.spec import hosts as blocks
from drumline.spec.types import Role, Spec
from drumline.words import count

Path = tuple[str | int, ...]


def hosts_of(spec: Spec) -> Hosts:
    """What the spec says of them."""
    options = spec.engine.ssh or blocks.SshOptions()
    return Hosts(
        all=tuple(
            Host(host.host, host.address, host.port, host.cpus, host.memory, host.gpus) for host in options.hosts
        ),
        config=options.config,
        folder=options.folder,
        python=options.python,
        shared=options.shared,
        lost_seconds=options.lost,
        lease_seconds=None if options.lease == inf else options.lease,
        pins=_pins(spec, options),
    )


def pin_complaints(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Everything about the hosts of roles that is impossible, with its path."""
    hosts = spec.engine.ssh.hosts if spec.engine.ssh else ()
    known = {name for host in hosts for name in (host.host, host.address)}
    for name in ("chief", "master", "worker", "ps", "evaluator"):
        role: Role | None = getattr(spec.roles, name)
        if not role or not role.hosts:
            continue
        path: Path = ("roles", name, "hosts")
        if len(role.hosts) != role.replicas:
            yield path, f"{count(len(role.hosts), 'host')} for {count(role.replicas, 'replica')}: give one for each"
        for index, host in enumerate(role.hosts):
            if known and host not in known:
                yield (*path, index), f"`{host}` is not among `engine.ssh.hosts`"


def _pins(spec: Spec, options: blocks.SshOptions) -> dict[str, str]:
    """Who is where, by the names that ssh has for the hosts; a role may also call them as their peers do."""
    called = {host.address: host.host for host in options.hosts if host.address}
    return {
        f"{name}.{index}": called.get(host, host)
        for name, role in _roles(spec).items()
        for index, host in enumerate(role.hosts)
    }


def _roles(spec: Spec) -> dict[str, Role]:
    roles = spec.roles
    written = {
        "chief": roles.chief or roles.master,
        "worker": roles.worker,
        "ps": roles.ps,
        "evaluator": roles.evaluator,
    }
    return {name: role for name, role in written.items() if role}


def complaints(options: blocks.SshOptions) -> Iterator[tuple[Path, str]]:
    """Everything about hosts that is impossible, with its path."""
    path: Path = ("engine", "ssh")
    names: set[str] = set()
    places: dict[tuple[str, int | None], str] = {}
    for index, host in enumerate(options.hosts):
        at = (*path, "hosts", index)
        if host.host in names:
            yield at, f"`{host.host}` is named twice; a host runs as many replicas as it has room for"
        elif host.address:
            place = (host.address, host.port)
            if place in places:
                words = host.address if host.port is None else f"{host.address}:{host.port}"
                remedy = "give each a `port` of its own" if host.port is None else "give it another `port`"
                yield at, f"peers would look for it at {words}, as for `{places[place]}`; {remedy}"
            places.setdefault(place, host.host)
        names.add(host.host)
    for key, folder in (("shared", options.shared), ("folder", options.folder)):
        if folder is not None and not folder.startswith("/") and not (key == "folder" and folder.startswith("~/")):
            yield (*path, key), f"is a folder of the hosts: write the path in full, not `{folder}`"
    if options.python.startswith("~"):
        yield (*path, "python"), "`~` is not expanded, for no shell reads it; write the path in full"
    for key in ("lost", "lease"):
        if getattr(options, key) == 0:
            yield (*path, key), "a limit of 0 is over before anything began; give more, or leave it out"
    if 0 < options.lease < options.lost:
        yield path, "`lease` is over before `lost`: replicas would end by themselves on a host that may yet answer"
