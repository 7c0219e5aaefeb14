"""The blocks of the spec that are about hosts reached by ssh."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Self

from drumline.spec.block import Block, Bytes, Path, Patience, Port, Seconds, Text
from drumline.spec.struct import Meta, structs

# As ssh itself reads a destination; never an option, and nothing that a shell would make something else of.
_PLACE = r"([A-Za-z0-9_][A-Za-z0-9_.-]*|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]+)?)"
HOST_PATTERN = rf"^([A-Za-z0-9_][A-Za-z0-9_.+-]*@)?{_PLACE}$"
HOST_WORDS = "a host as ssh knows it, such as gpu1 or me@gpu1"
HostName = Annotated[str, Meta(pattern=HOST_PATTERN, extra={"words": HOST_WORDS})]
Address = Annotated[
    str,
    Meta(pattern=rf"^{_PLACE}$", extra={"words": "a name or an address, without a port"}),
]


class SshHost(Block, frozen=True):
    """A host reached by ssh, and what may be used of it."""

    short: ClassVar[str | None] = "host"
    host: HostName
    address: Annotated[
        Address | None, Meta(description="The address its peers use; unless said, the one that ssh connects to")
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
        Path | None, Meta(description="Where runs have theirs on each host; ~/.local/share/drumline there unless said")
    ] = None
    python: Annotated[Text, Meta(description="The Python of the hosts, 3.11 or newer: a name or a path there")] = (
        "python3"
    )
    config: Annotated[Path | None, Meta(description="A file for ssh to read instead of ~/.ssh/config")] = None
    lost: Annotated[Seconds, Meta(description="Without an answer, before a host counts as lost")] = 60.0
    lease: Annotated[
        Patience, Meta(description="Without a word from here, before replicas there end by themselves; or never")
    ] = 300.0

    def for_hosts(self, names: Sequence[str]) -> Self:
        """The same for the hosts of these names alone; a host that is known here is as it is here."""
        known = {host.host: host for host in self.hosts}
        return structs.replace(self, hosts=tuple(known.get(name) or SshHost(host=name) for name in names))
