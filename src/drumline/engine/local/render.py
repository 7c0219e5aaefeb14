"""Render the launches of a plan: as a shell script, or as data."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from drumline.engine.local.planned import local_plan
from drumline.plan.bind import bind_preparations
from drumline.plan.types import Extended, Launch, LaunchValue, Plan, PreparationLaunch, ReplicaId, Secret, Shared
from drumline.spec.write import write_yaml

# Variables that some shell sets itself or makes read-only: `export` would not pass them to a replica.
_SHELL_VARIABLES = re.compile(
    r"_|BASH.*|COMP_.*|DIRSTACK|EPOCH(REALTIME|SECONDS)|E?UID|FUNCNAME|GROUPS|HISTCMD|LINENO|OLDPWD|OPT(ARG|ERR|IND)|PPID|PWD"
    r"|S?RANDOM|SECONDS|SHELLOPTS|SHLVL"
)

_WIDTH = 100  # of lists in comments
_NO_HOSTS: Mapping[ReplicaId, str] = MappingProxyType({})


def render(
    plan: Plan,
    launches: Sequence[Launch],
    form: str,
    *,
    build: Sequence[str] = (),
    hosts: Mapping[ReplicaId, str] = _NO_HOSTS,
) -> str:
    """Return the launches in one of the engine's forms; `build` is the command that builds their environment.

    `hosts` has the host of each replica if it is not this machine; paths may then begin with `~/`.
    """
    preparations = bind_preparations(plan, launches[0].place)
    match form:
        case "json":
            return json.dumps(_data(plan, preparations, launches, build, hosts), indent=2, ensure_ascii=False) + "\n"
        case "yaml":
            return write_yaml(_data(plan, preparations, launches, build, hosts))
        case _:
            return "".join(f"{line}\n" for line in _script(plan, preparations, launches, build, hosts))


def _data(
    plan: Plan,
    preparations: Sequence[PreparationLaunch],
    launches: Sequence[Launch],
    build: Sequence[str],
    hosts: Mapping[ReplicaId, str],
) -> dict[str, object]:
    shared = _shared(launches)
    return {
        "v": 1,
        "run": plan.run,
        "name": plan.name,
        **({"network": "private"} if local_plan(plan).private_network else {}),
        **({"shared": shared} if shared else {}),
        **({"build": {"environment": launches[0].place.environment, "argv": list(build)}} if build else {}),
        **({"prepare": [_preparation_data(item) for item in preparations]} if preparations else {}),
        "replicas": [
            {
                "id": str(launch.replica.id),
                "name": launch.replica.name,
                **({"host": hosts[launch.replica.id]} if hosts else {}),
                "workdir": launch.place.workdir,
                "argv": list(launch.replica.argv),
                "env": _env_data(launch.env),
            }
            for launch in launches
        ],
    }


def _preparation_data(item: PreparationLaunch) -> dict[str, object]:
    return {
        "name": item.preparation.name,
        "path": item.path,
        "partial": item.partial,
        "workdir": item.workdir,
        "argv": list(item.preparation.argv),
        "env": _env_data(item.env),
    }


def _env_data(env: Mapping[str, LaunchValue]) -> dict[str, str]:
    def text(value: LaunchValue) -> str:
        return f"{value.before}${{{value.name}}}{value.after}" if isinstance(value, Shared) else str(value)

    return {name: text(value) for name, value in env.items()}


def _shared(launches: Sequence[Launch]) -> dict[str, str]:
    return {value.name: value.text for launch in launches for value in launch.env.values() if isinstance(value, Shared)}


def _script(
    plan: Plan,
    preparations: Sequence[PreparationLaunch],
    launches: Sequence[Launch],
    build: Sequence[str],
    hosts: Mapping[ReplicaId, str],
) -> Iterator[str]:
    common = _common(launches)
    place = launches[0].place
    yield "#!/bin/sh"
    yield f"# {plan.name}, run {plan.run}: each replica with the environment that `drumline train` gives it."
    if hosts:
        yield from _on_hosts(hosts)
    else:
        yield "# Start every replica in a terminal of its own: sh THIS-FILE REPLICA"
    if local_plan(plan).private_network:
        yield "# The addresses are those of the private network that `drumline train` makes. This script makes none:"
        yield "# to start replicas by hand, leave out `network: private`."
    if build:
        yield "# Before all others, once: sh THIS-FILE build"
    if preparations:
        yield "# Before the first, once: sh THIS-FILE prepare"
    yield "set -eu"
    yield ""
    yield f"cd {_quoted(place.workdir)}"
    for name, text in _shared(launches).items():
        yield f"{name}={_quoted(text)}"
    yield ""
    yield "common() {"
    yield f"    mkdir -p {_quoted(place.output_dir)} {_quoted(place.checkpoint_dir)}"
    for name, value in common.items():
        yield f"    export {_assignment(name, value)}"
    yield "}"
    yield ""
    yield 'case "${1-}" in'
    if build:
        yield from ("build)", f"    exec {shlex.join(build)}", "    ;;")
    if preparations:
        yield "prepare)"
        for item in preparations:
            yield from _indented(_prepare(item))
        yield "    ;;"
    for launch in launches:
        own = {name: value for name, value in launch.env.items() if name not in common}
        yield f"{launch.replica.id})"
        yield from _indented(_start(launch.replica.argv, own, before=["common"]))
        yield "    ;;"
    yield "*)"
    yield '    echo "usage: sh $0 REPLICA, one of:" >&2'
    for line in _in_lines([str(launch.replica.id) for launch in launches]):
        yield f'    echo "  {line}" >&2'
    yield "    exit 2"
    yield "    ;;"
    yield "esac"


def _on_hosts(hosts: Mapping[ReplicaId, str]) -> Iterator[str]:
    """Yield comments that list the replicas of each host."""
    yield "# Start every replica on its host, in a copy of the project: sh THIS-FILE REPLICA"
    for host in dict.fromkeys(hosts.values()):
        names = " ".join(str(name) for name, its in hosts.items() if its == host)
        yield from (f"#   {host}: {line}" for line in _in_lines(names.split()))
    yield "# `drumline train` gets addresses and ports that the spec does not name from the hosts."


def _common(launches: Sequence[Launch]) -> Mapping[str, LaunchValue]:
    """Return the variables that have the same value in all replicas and can be exported once."""
    common = {
        name: value
        for name, value in launches[0].env.items()
        if not isinstance(value, Secret) and not _SHELL_VARIABLES.fullmatch(name)
    }
    for launch in launches[1:]:
        for name in [name for name, value in common.items() if launch.env.get(name) != value]:
            del common[name]
    return common


def _prepare(item: PreparationLaunch) -> Iterator[str]:
    """Yield commands that make a data folder under another name and rename it when it is complete."""
    path, partial = _quoted(item.path), _quoted(item.partial)
    yield f"if [ ! -e {path} ]; then"
    yield f"    mkdir -p {partial}"
    yield "    ("
    yield from _indented(_indented(_start(item.preparation.argv, item.env)))
    yield "    )"
    yield f"    mv {partial} {path}"
    yield "fi"


def _start(argv: Sequence[str], env: Mapping[str, LaunchValue], before: Sequence[str] = ()) -> Iterator[str]:
    """Yield commands that export the variables and execute the command."""
    secrets = {name: value for name, value in env.items() if isinstance(value, Secret)}
    given = {name: value for name, value in env.items() if name not in secrets}
    if secrets:  # before anything changes the variables from which they are read
        yield f"export {_assignments(secrets)}"
    yield from before
    for name, value in given.items():
        if not _SHELL_VARIABLES.fullmatch(name):
            yield f"export {_assignment(name, value)}"
    late = {name: value for name, value in given.items() if _SHELL_VARIABLES.fullmatch(name)}
    yield f"exec /usr/bin/env {_assignments(late)} {shlex.join(argv)}" if late else f"exec {shlex.join(argv)}"


def _assignments(env: Mapping[str, LaunchValue]) -> str:
    return " ".join(_assignment(name, value) for name, value in env.items())


def _assignment(name: str, value: LaunchValue) -> str:
    match value:
        case Secret():
            return f'{name}="{value}"'
        case Shared():
            before, after = (shlex.quote(text) if text else "" for text in (value.before, value.after))
            return f'{name}={before}"${value.name}"{after}'
        case Extended():
            return f'{name}={shlex.quote(value.text)}"{value.rest}"'
        case _:
            return f"{name}={shlex.quote(value)}"


def _quoted(text: str) -> str:
    """Quote a text for the shell; a leading `~/` becomes `"$HOME"/`."""
    home, slash, rest = text.partition("/")
    if home != "~":
        return shlex.quote(text)
    return f'"$HOME"{slash}{shlex.quote(rest) if rest else ""}'


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def _in_lines(words: Sequence[str]) -> Iterator[str]:
    line = ""
    for word in words:
        if line and len(line) + len(word) + 1 > _WIDTH:
            yield line
            line = ""
        line = f"{line} {word}".strip()
    yield line
