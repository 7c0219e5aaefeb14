"""The block of the spec for hosts reached by ssh."""

import pathlib
from collections.abc import Iterator
from math import inf
from typing import Annotated, ClassVar, cast

from drumline.engine.options import Flag, LaunchInput
from drumline.engine.ssh.plan_options import Host, Hosts
from drumline.plan.codec import to_options
from drumline.plan.make import EnginePart, roles_of
from drumline.plan.rules import Path as At
from drumline.plan.rules import SpecProblem, named_roles
from drumline.spec.block import Block, Bytes, Path, Port, Seconds, SecondsOrNever, Text
from drumline.spec.hosts import ADDRESS_PATTERN, HostName, read_hosts
from drumline.spec.struct import Meta, structs
from drumline.spec.types import Spec

CONFIG = "DRUMLINE_SSH_CONFIG"
Address = Annotated[
    str,
    Meta(pattern=rf"^{ADDRESS_PATTERN}$", extra={"expected": "a name or an address, without a port"}),
]


class SshHost(Block, frozen=True):
    """A host reached by ssh, and what may be used of it."""

    short: ClassVar[str | None] = "host"
    host: HostName
    address: Annotated[
        Address | None, Meta(description="The address its peers use; by default the one that ssh connects to")
    ] = None
    port: Annotated[Port | None, Meta(description="Its first training port, where a firewall wants a fixed one")] = None
    cpus: Annotated[float, Meta(ge=0.01)] | None = None
    memory: Bytes | None = None
    gpus: Annotated[int, Meta(ge=0)] | None = None


class SshOptions(Block, frozen=True):
    """Hosts reached with your own ssh configuration."""

    short: ClassVar[str | None] = "hosts"
    hosts: Annotated[tuple[SshHost, ...], Meta(description="`--hosts a,b` names others for once")] = ()
    shared: Annotated[
        Path | None, Meta(description="A folder that every host has in common, such as one on NFS; OUTPUT_DIR is in it")
    ] = None
    folder: Annotated[
        Path | None, Meta(description="The folder of runs on each host; by default ~/.local/share/drumline")
    ] = None
    python: Annotated[Text, Meta(description="The Python of the hosts, 3.11 or newer: a name or a path there")] = (
        "python3"
    )
    config: Annotated[Path | None, Meta(description="A file for ssh to read instead of ~/.ssh/config")] = None
    lost: Annotated[Seconds, Meta(description="The time without an answer after which a host counts as lost")] = 60.0
    lease: Annotated[
        SecondsOrNever,
        Meta(description="The time without a connection after which replicas on a host end by themselves; or never"),
    ] = 300.0


Options = SshOptions
FLAGS = (Flag("hosts", "HOST,...", "Run on these by ssh, instead of the spec's hosts.", "ssh", chooses=True),)


def plan(spec: Spec, engine: str, given: LaunchInput) -> EnginePart:
    """Return this engine's part of a plan; it depends on no variable or current folder of later commands."""
    options = _options(spec, engine) or SshOptions()
    if (typed := given.flags.get("hosts")) is not None:
        known = {host.host: host for host in options.hosts}
        hosts = tuple(known.get(name) or SshHost(host=name) for name in read_hosts(typed))
        options = structs.replace(options, hosts=hosts)
    found = _hosts(spec, options)
    config = given.environ.get(CONFIG) or found.config
    found = found.replace(
        config=None if config is None else str(pathlib.Path(given.directory, config).absolute()),
        unique=given.unique,
        user=given.user,
    )
    where = ", ".join(found.names)
    return EnginePart(to_options(found), where, is_elsewhere=True, fetches_output=True, forks_warm=True)


def problems(spec: Spec, engine: str) -> Iterator[SpecProblem]:
    """Yield problems of the engine's hosts and limits, and of the hosts that roles name."""
    options = _options(spec, engine)
    if options:
        yield from _about_hosts(options, ("engine", engine))
        yield from _about_limits(options, ("engine", engine))
    hosts = options.hosts if options else ()
    known = {name for host in hosts for name in (host.host, host.address)}
    for name, role in named_roles(spec):
        for index, host in enumerate(role.hosts):
            if known and host not in known:
                message = f"`{host}` is not among `engine.{engine}.hosts`"
                yield SpecProblem(("roles", name, "hosts", index), message, follows_from=(("engine", engine, "hosts"),))


def _options(spec: Spec, engine: str) -> SshOptions | None:
    return cast("SshOptions | None", spec.engine.options(engine))


def _hosts(spec: Spec, options: SshOptions) -> Hosts:
    # A role may name a host by its name for ssh, or by the address that its peers use.
    called = {host.address: host.host for host in options.hosts if host.address}
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
        pins={
            f"{name}.{index}": called.get(host, host)
            for name, role in roles_of(spec).items()
            for index, host in enumerate(role.hosts)
        },
    )


def _about_hosts(options: SshOptions, path: At) -> Iterator[SpecProblem]:
    names: set[str] = set()
    places: dict[tuple[str, int | None], str] = {}
    for index, host in enumerate(options.hosts):
        at = (*path, "hosts", index)
        if host.host in names:
            yield SpecProblem(at, f"`{host.host}` is named twice; a host runs as many replicas as it has room for")
        elif host.address:
            place = (host.address, host.port)
            if place in places:
                words = host.address if host.port is None else f"{host.address}:{host.port}"
                remedy = "give each a `port` of its own" if host.port is None else "give it another `port`"
                yield SpecProblem(at, f"{words} is already the address of `{places[place]}`; {remedy}")
            places.setdefault(place, host.host)
        names.add(host.host)


def _about_limits(options: SshOptions, path: At) -> Iterator[SpecProblem]:
    for key, folder in (("shared", options.shared), ("folder", options.folder)):
        if folder is not None and not folder.startswith("/") and not (key == "folder" and folder.startswith("~/")):
            yield SpecProblem((*path, key), f"is a folder of the hosts: write the path in full, not `{folder}`")
    if options.python.startswith("~"):
        yield SpecProblem((*path, "python"), "`~` is not expanded, since no shell reads it; write the full path")
    for key in ("lost", "lease"):
        if getattr(options, key) == 0:
            yield SpecProblem((*path, key), "a limit of 0 would end the run at once; set a longer one, or remove it")
    if 0 < options.lease < options.lost:
        yield SpecProblem(
            path, "`lease` is over before `lost`: replicas would end by themselves on a host that may yet answer"
        )
