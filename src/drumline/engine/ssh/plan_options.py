"""The options of a plan for the ssh engine: its hosts and their settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from drumline.errors import InputError
from drumline.plan.codec import read_options, to_options
from drumline.plan.types import Plan
from drumline.record import Record


class Host(Record):
    """A host, as named for ssh; values that the spec does not set are None until the host has answered."""

    name: str
    address: str | None = None  # the address that its peers use
    port: int | None = None  # the first of its training ports
    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int | None = None

    @property
    def reached_at(self) -> str:
        """Return the address for its peers; if it is not known, its name for ssh."""
        return self.address or self.name.rpartition("@")[2]


class Hosts(Record):
    """The hosts of a run and their settings.

    The command that launches the run sets `unique`, `user` and `config`: they are the same for all its supervisors.
    """

    all: tuple[Host, ...] = ()
    unique: str = ""  # a few random letters that make folders of two runs distinct; empty in `render`
    user: str = ""
    config: str | None = None  # the file that ssh reads instead of the user's own
    folder: str | None = None  # the folder of all runs on each host; None: the default
    python: str = "python3"
    shared: str | None = None  # a folder that they have in common
    lost_seconds: float = 60.0
    lease_seconds: float | None = 300.0  # None: unlimited
    pins: Mapping[str, str] = MappingProxyType({})  # the host that a replica has to be on, by the replica's id

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names for ssh, in the order of the spec."""
        return tuple(host.name for host in self.all)

    @property
    def shares_output(self) -> bool:
        """Return whether all hosts share OUTPUT_DIR."""
        return self.shared is not None or len(self.all) == 1


def require_hosts(hosts: Hosts) -> None:
    """Raise InputError if no hosts are named."""
    if not hosts.all:
        raise InputError(
            "no hosts are named that it could run on",
            hint="name them with `--hosts a,b`, or in the spec: `engine: {ssh: {hosts: [a, b]}}`",
        )


def host_warnings(hosts: Hosts) -> Iterator[str]:
    """Yield a warning if the hosts do not share OUTPUT_DIR."""
    if not hosts.shares_output:
        yield (
            f"OUTPUT_DIR is not shared: each of {len(hosts.all)} hosts has its own, and the chief's is fetched back;"
            " if they have a folder in common, name it: `ssh: {shared: PATH}`"
        )


def hosts_of(plan: Plan) -> Hosts:
    """Return the hosts of a plan for the ssh engine."""
    return read_options(Hosts, plan.options)


def with_hosts(plan: Plan, hosts: Hosts) -> Plan:
    """Return the plan with these hosts as its options."""
    return plan.replace(options=to_options(hosts))
