"""What would run here, written down: a script for people, or the same as data."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence

from drumline.engine.protocol import Site
from drumline.plan.types import Launch, LaunchValue, Plan, Preparation, Secret, Shared
from drumline.spec import document


def render(plan: Plan, launches: Sequence[Launch], form: str, site: Site) -> str:
    """Write the launches in one of the engine's forms."""
    match form:
        case "json":
            return json.dumps(_data(plan, launches), indent=2, ensure_ascii=False) + "\n"
        case "yaml":
            return document.dump(_data(plan, launches))
        case _:
            return "".join(f"{line}\n" for line in _script(plan, launches, site))


def _data(plan: Plan, launches: Sequence[Launch]) -> dict[str, object]:
    shared = _shared(launches)
    return {
        "v": 1,
        "run": plan.run,
        "name": plan.name,
        **({"shared": shared} if shared else {}),
        **({"prepare": [_preparation_data(item) for item in plan.preparations]} if plan.preparations else {}),
        "replicas": [
            {
                "id": str(launch.replica.id),
                "name": launch.replica.name,
                "workdir": launch.place.workdir,
                "argv": list(launch.replica.argv),
                "env": {name: _text(value) for name, value in launch.env.items()},
            }
            for launch in launches
        ],
    }


def _preparation_data(item: Preparation) -> dict[str, object]:
    return {
        "name": item.name,
        "path": item.path,
        "argv": list(item.argv),
        "env": {name: _text(value) for name, value in item.env.items()},
    }


def _text(value: LaunchValue) -> str:
    return f"{value.before}${{{value.name}}}{value.after}" if isinstance(value, Shared) else str(value)


def _shared(launches: Sequence[Launch]) -> dict[str, str]:
    return {value.name: value.text for launch in launches for value in launch.env.values() if isinstance(value, Shared)}


def _script(plan: Plan, launches: Sequence[Launch], site: Site) -> Iterator[str]:
    common = _common(launches)
    yield "#!/bin/sh"
    yield f"# {plan.name}, run {plan.run}: each replica with the environment that `drumline train` gives it."
    yield "# Start every replica in a terminal of its own: sh THIS-FILE REPLICA"
    if plan.preparations:
        yield "# Before the first, once: sh THIS-FILE prepare"
    yield "set -eu"
    yield ""
    yield f"cd {shlex.quote(launches[0].place.workdir)}"
    if site.python_dir:
        yield f'export PATH={shlex.quote(site.python_dir)}"${{PATH:+:$PATH}}"'
    for name, text in _shared(launches).items():
        yield f"{name}={shlex.quote(text)}"
    yield ""
    yield "common() {"
    for name, value in common.items():
        yield f"    {_export(name, value)}"
    yield '    mkdir -p "$OUTPUT_DIR" "$CHECKPOINT_DIR"'
    yield "}"
    yield ""
    yield 'case "${1-}" in'
    if plan.preparations:
        yield "prepare)"
        yield from _prepare(plan, launches[0])
        yield "    ;;"
    for launch in launches:
        yield f"{launch.replica.id})"
        yield "    common"
        for name, value in launch.env.items():
            if name not in common:
                yield f"    {_export(name, value)}"
        yield f"    exec {shlex.join(launch.replica.argv)}"
        yield "    ;;"
    yield "*)"
    yield '    echo "usage: sh $0 REPLICA, one of:" >&2'
    for line in _in_lines([str(launch.replica.id) for launch in launches]):
        yield f'    echo "  {line}" >&2'
    yield "    exit 2"
    yield "    ;;"
    yield "esac"


def _common(launches: Sequence[Launch]) -> Mapping[str, LaunchValue]:
    """The variables that every replica has alike."""
    common = dict(launches[0].env)
    for launch in launches[1:]:
        for name in [name for name, value in common.items() if launch.env.get(name) != value]:
            del common[name]
    return common


def _export(name: str, value: LaunchValue) -> str:
    match value:
        case Secret():
            return f'export {name}="{value}"'
        case Shared():
            return f'export {name}={shlex.quote(value.before)}"${value.name}"{shlex.quote(value.after)}'
        case _ if name == "no_proxy":
            return f'export {name}={shlex.quote(value)}"${{no_proxy:+,$no_proxy}}"'
        case _:
            return f"export {name}={shlex.quote(value)}"


def _prepare(plan: Plan, launch: Launch) -> Iterator[str]:
    """Make each data folder beside its place and move it there when it is whole."""
    paths = {data.path: path for data, path in zip(plan.data, launch.place.data_dirs, strict=True)}
    for item in plan.preparations:
        path = shlex.quote(paths[item.path])
        partial = shlex.quote(paths[item.path] + ".partial")
        yield f"    if [ ! -e {path} ]; then"
        yield f"        mkdir -p {partial}"
        yield "        ("
        for name, value in item.env.items():
            yield f"            {_export(name, value)}"
        yield f"            export DATA_DIR={partial}"
        yield f"            exec {shlex.join(item.argv)}"
        yield "        )"
        yield f"        mv {partial} {path}"
        yield "    fi"


def _in_lines(words: Sequence[str], width: int = 100) -> Iterator[str]:
    line = ""
    for word in words:
        if line and len(line) + len(word) + 1 > width:
            yield line
            line = ""
        line = f"{line} {word}".strip()
    yield line
