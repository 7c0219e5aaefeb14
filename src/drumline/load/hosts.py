"""Hosts as the command line names them: instead of the spec's, and settled for whoever takes the run up."""

from __future__ import annotations

import os
import re
from pathlib import Path

from drumline.errors import InputError
from drumline.plan.hosts import Host, Hosts, require_hosts
from drumline.spec.hosts import HOST_PATTERN, HOST_WORDS, SshOptions
from drumline.spec.types import Spec
from drumline.words import printable

CONFIG = "DRUMLINE_SSH_CONFIG"


def with_hosts(spec: Spec, text: str, on: str | None) -> tuple[Spec, str]:
    """The spec on these hosts alone, and the engine that is meant where somebody names hosts."""
    options = spec.engine.ssh or SshOptions()
    return spec.with_hosts(options.for_hosts(read_hosts(text))), _engine(on)


def hosts_alone(text: str, on: str | None, directory: Path) -> Hosts:
    """These hosts, where there is no spec."""
    _engine(on)
    return settled(Hosts(all=tuple(map(Host, read_hosts(text)))), directory, unique="", user="")


def settled(hosts: Hosts, directory: Path, *, unique: str, user: str) -> Hosts:
    """The same, so that it means the same from any folder and in any shell; raise InputError if there are none."""
    require_hosts(hosts)
    config = os.environ.get(CONFIG) or hosts.config
    return hosts.replace(
        config=None if config is None else str((directory / config).absolute()), unique=unique, user=user
    )


def read_hosts(text: str) -> tuple[str, ...]:
    """Read `a,b`; raise InputError for what cannot be a host, and for one that is named twice."""
    if not text.strip():
        raise InputError("--hosts names none", hint="name them with commas between: `--hosts gpu1,me@gpu2`")
    names = tuple(name.strip() for name in text.split(","))
    for number, name in enumerate(names):
        if re.fullmatch(r"[^:]+:[0-9]+", name):
            raise InputError(
                f"--hosts {printable(text)}: `{printable(name)}` has a port behind it",
                hint="that of sshd is `Port` in your ssh configuration, and one to train with `port` in the spec",
            )
        if re.fullmatch(HOST_PATTERN, name) is None:
            what = f"`{printable(name)}` is none" if name else "there is nothing before or after a comma"
            raise InputError(f"--hosts {printable(text)}: expected {HOST_WORDS}, several with commas; {what}")
        if name in names[:number]:
            raise InputError(
                f"--hosts {printable(text)}: `{name}` is named twice",
                hint="a host runs as many replicas as it has room for",
            )
    return names


def _engine(on: str | None) -> str:
    if on not in (None, "ssh"):
        raise InputError(f"--hosts is for ssh, and this runs on {on}", hint="leave out `--on`, or say `--on ssh`")
    return "ssh"
