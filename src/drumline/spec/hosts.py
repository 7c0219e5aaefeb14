"""Names of ssh hosts, in a spec and on the command line."""

import re
from typing import Annotated

from drumline.errors import InputError
from drumline.spec.block import matching
from drumline.words import printable

# An ssh destination; never an option, and without characters that a shell interprets.
ADDRESS_PATTERN = r"([A-Za-z0-9_][A-Za-z0-9_.-]*|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]+)?)"
HOST_PATTERN = rf"^([A-Za-z0-9_][A-Za-z0-9_.+-]*@)?{ADDRESS_PATTERN}$"
HOST_DESCRIPTION = "a host as ssh knows it, such as gpu1 or me@gpu1"
HostName = Annotated[str, matching(HOST_PATTERN, HOST_DESCRIPTION)]


def read_hosts(text: str) -> tuple[str, ...]:
    """Return the hosts of `a,b`; raise InputError for an invalid or repeated one."""
    if not text.strip():
        raise InputError("--hosts names none", hint="name them with commas between: `--hosts gpu1,me@gpu2`")
    names = tuple(name.strip() for name in text.split(","))
    for number, name in enumerate(names):
        if re.fullmatch(r"[^:]+:[0-9]+", name):
            raise InputError(
                f"--hosts {printable(text)}: `{printable(name)}` has a port",
                hint="set sshd's port with `Port` in your ssh configuration, and the replicas' with `port` in the spec",
            )
        if re.fullmatch(HOST_PATTERN, name) is None:
            what = f"`{printable(name)}` is not a host" if name else "there is nothing before or after a comma"
            raise InputError(f"--hosts {printable(text)}: expected {HOST_DESCRIPTION}, several with commas; {what}")
        if name in names[:number]:
            raise InputError(
                f"--hosts {printable(text)}: `{name}` is named twice",
                hint="a host runs as many replicas as it has room for",
            )
    return names
