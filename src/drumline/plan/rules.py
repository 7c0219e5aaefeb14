"""Validate a spec: find problems and warnings that concern several keys.

`make_plan` can make a plan from a spec without a fatal problem.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from drumline.plan.bind import CONTRACT, reserved
from drumline.plan.command import commands, mistaken_words, texts
from drumline.plan.environment import environment_problems
from drumline.plan.make import chief_of, data_of, roles_of
from drumline.plan.name import variable_name
from drumline.plan.parameters import (
    describe_unclosed,
    lookalikes,
    placeholders,
    shell_placeholders,
    unclosed_placeholders,
    unfinished,
)
from drumline.record import Record
from drumline.spec.types import Data, Role, Run, Spec, Value, Volume
from drumline.words import count, nearest

Path = tuple[str | int, ...]

# A parameter with such a name would replace a variable that every process needs.
_NEEDED_VARIABLES = r"PATH|HOME|SHELL|USER|IFS|PWD|TMPDIR|ENV|LANG|LC_.*|LD_.*|DYLD_.*|PYTHON.*"
_EXPANDED = r"^~[^/]*|\$\{?[A-Za-z_]\w*\}?"
_SHELL = re.compile(r"(?:/(?:usr/)?bin/)?(?:ba|da)?sh")
_COMMAND_OPTION = re.compile(r"-[a-z]*c")
_ROLES = ("chief", "master", "worker", "ps", "evaluator")


class SpecProblem(Record):
    """A problem of the value at a path, or a warning about it."""

    path: Path
    message: str
    fatal: bool = True  # false: a warning
    follows_from: tuple[Path, ...] = ()  # the problem is not reported if the value at one of these could not be read


def spec_problems(spec: Spec) -> Iterator[SpecProblem]:
    """Yield all problems and warnings, except those of engine blocks, in no particular order."""
    yield from _about_roles(spec)
    yield from _about_commands(spec)
    yield from _about_parameters(spec)
    yield from _about_variables(spec)
    yield from _about_folders(spec)
    yield from _about_time(spec)
    yield from _about_codes(spec)
    yield from _about_success(spec)
    yield from (
        SpecProblem(path, message, follows_from=(("framework",),)) for path, message in environment_problems(spec)
    )


def _about_roles(spec: Spec) -> Iterator[SpecProblem]:
    roles = spec.roles
    for name, role in (("chief", roles.chief), ("master", roles.master)):
        if role and role.replicas != 1:
            yield SpecProblem(
                ("roles", name), f"there is exactly one {name}, not {role.replicas}; the others are workers"
            )
    if roles.chief and roles.master:
        yield SpecProblem(("roles", "master"), "`master` is another word for `chief`; keep one of them")
    if roles.ps and spec.framework in ("torch", "jax"):
        yield SpecProblem(
            ("roles", "ps"), f"{spec.framework} has no parameter servers; its replicas are chief and workers"
        )
    if roles.evaluator and roles.evaluator.replicas != 1 and spec.framework == "tensorflow":
        yield SpecProblem(
            ("roles", "evaluator"), "TensorFlow supports only one evaluator", follows_from=(("framework",),)
        )
    if (roles.ps or roles.evaluator) and not (roles.worker or chief_of(spec)):
        yield SpecProblem(("roles",), "no replica trains: add a `worker` or a `chief`")
    elif roles.ps and not chief_of(spec) and spec.framework == "tensorflow":
        yield SpecProblem(
            ("roles", "ps"),
            "parameter servers without a chief: today's strategies need one to coordinate, and a mirrored strategy"
            " with ps in its cluster hangs without a message; add `chief: 1`, or drop ps",
            fatal=False,
        )
    for name, role in named_roles(spec):
        if role.hosts and len(role.hosts) != role.replicas:
            yield SpecProblem(
                ("roles", name, "hosts"),
                f"{count(len(role.hosts), 'host')} for {count(role.replicas, 'replica')}: give one for each",
                follows_from=(("roles", name, "replicas"),),
            )
        if isinstance(role.port, tuple) and len(role.port) != role.replicas:
            yield SpecProblem(
                ("roles", name, "port"),
                f"{count(len(role.port), 'port')} for {count(role.replicas, 'replica')}: give one for each",
                follows_from=(("roles", name, "replicas"),),
            )


def _about_commands(spec: Spec) -> Iterator[SpecProblem]:
    without = [
        name
        for name, role in roles_of(spec).items()
        if not (spec.run or role.run or (role.first.run and role.replicas == 1))
    ]
    if without and len(without) == len(roles_of(spec)):
        perhaps = tuple(("roles", name, "run") for name in _ROLES)
        yield SpecProblem(("run",), "is missing: it is the command of the replicas", follows_from=perhaps)
    else:
        for name in without:
            nothing = "has no command: add `run` to it, or to the spec"
            yield SpecProblem(("roles", name), nothing, follows_from=(("run",),))
    for path, run in runs(spec):
        if (run.shell is None) == (run.argv is None):
            yield SpecProblem(path, "give either `shell` or `argv`")
        if run.argv and not run.argv[0].strip():
            yield SpecProblem(path, "the first word is empty: name a program")
        if mistake := mistaken_words(run):
            yield SpecProblem(path, mistake)
        for place, message in _unfinished(path, run):
            yield SpecProblem(place, message)
        filled = [placeholder for command in commands(run) for placeholder in shell_placeholders(command)]
        for name, trouble in dict.fromkeys((placeholder.name, placeholder.problem) for placeholder in filled):
            if trouble:
                yield SpecProblem(
                    path,
                    f"`{{{{ {name} }}}}` cannot be filled in safely in {trouble};"
                    f' "${variable_name(name)}" has the same value',
                )
        for alike in dict.fromkeys(alike for text in texts(run) for alike in lookalikes(text)):
            yield SpecProblem(path, f"`{alike}` is not a placeholder and is passed on unchanged", fatal=False)


def _unfinished(path: Path, run: Run) -> Iterator[tuple[Path, str]]:
    """Yield a message for each unclosed part of a `run`, with the path of its command."""
    for index, command in enumerate(commands(run)):
        place = path if isinstance(run.shell, str) else (*path, index)
        yield from ((place, message) for message in dict.fromkeys(unfinished(command)))
    for word in run.argv or ():
        yield from ((path, describe_unclosed(text)) for text in unclosed_placeholders(word))
    match run.argv:
        case (shell, option, command, *_) if _SHELL.fullmatch(shell) and _COMMAND_OPTION.fullmatch(option):
            known = {describe_unclosed(text) for text in unclosed_placeholders(command)}
            yield from ((path, message) for message in dict.fromkeys(unfinished(command)) if message not in known)


def _about_parameters(spec: Spec) -> Iterator[SpecProblem]:
    for path, value in (*((path, each.value or "") for path, each in _values(spec)), *_folders(spec)):
        yield from (SpecProblem(path, describe_unclosed(text)) for text in unclosed_placeholders(value))
    used = dict.fromkeys(_placeholders(spec))
    for path, name in used:
        if name == "run":
            yield SpecProblem(
                path, '`{{ run }}` stands for the run only in `output` and `checkpoint`; "$DRUMLINE_RUN" has it'
            )
        elif name not in spec.parameters:
            near = nearest(name, itertools.islice(spec.parameters, 100))
            hint = f"did you mean `{near}`?" if near else f"add it: `parameters: {{{name}: …}}`"
            yield SpecProblem(
                path,
                f"`{{{{ {name} }}}}` is not among the parameters; {hint}",
                follows_from=(("parameters", name),),
            )
    used_names = {name for _, name in used}
    variables: dict[str, str] = {}
    for name in spec.parameters:
        path, variable = ("parameters", name), variable_name(name)
        if name == "run":
            yield SpecProblem(
                path, "`{{ run }}` is the id of the run in `output` and `checkpoint`; choose another name"
            )
        elif variable in reserved(spec.framework) or variable.startswith(("DRUMLINE_", "DATA_DIR_")):
            yield SpecProblem(
                path,
                f"would be given as {variable}, which drumline sets itself; choose another name",
                follows_from=(("framework",),),
            )
        elif re.fullmatch(_NEEDED_VARIABLES, variable):
            yield SpecProblem(
                path, f"would be given as {variable}, which every process needs as it is; choose another name"
            )
        elif variable in variables:
            yield SpecProblem(path, f"would be given as {variable}, as `{variables[variable]}` is; choose another name")
        variables[variable] = name
        if name not in used_names:
            yield SpecProblem(path, f"is not used in any command; it is still given as {variable}", fatal=False)


def _about_variables(spec: Spec) -> Iterator[SpecProblem]:
    own = reserved(spec.framework) | set(data_of(spec))
    given = {variable_name(name): name for name in spec.parameters}
    for path, value in _values(spec):
        name = str(path[-1])
        if (value.value is None) == (value.from_ is None):
            yield SpecProblem(path, "give either `value` or `from`")
        elif (name in own or name.startswith("DRUMLINE_")) and not value.override:
            setter = "drumline" if name in CONTRACT or name not in reserved(spec.framework) else "the rendezvous"
            yield SpecProblem(
                path,
                f"is set by {setter}; to replace it, write `{{value: …, override: true}}`; training may fail then",
                follows_from=(("framework",),) if setter == "the rendezvous" else (),
            )
        elif name in given and not value.override:
            yield SpecProblem(path, f"is already given by the parameter `{given[name]}`; keep one of them")


def _about_folders(spec: Spec) -> Iterator[SpecProblem]:
    several = tuple(_data(spec))
    seen: dict[str, str] = {}
    for path, data in several:
        variable = f"DATA_DIR_{variable_name(data.name)}" if data.name else "DATA_DIR"
        if len(several) > 1 and not data.name:
            yield SpecProblem(path, "`name` is missing: several data folders need names to tell them apart")
        elif variable in seen:
            yield SpecProblem(path, f"would be given as {variable}, as `{seen[variable]}` is; choose another name")
        seen[variable] = data.name or ""
        if data.volume:
            yield from about_volume((*path, "volume"), data.volume)
        if data.prepare and data.path.strip("./") == "":
            yield SpecProblem(
                (*path, "path"),
                f"`prepare` creates this folder, so it cannot be `{data.path}`; choose a separate folder",
            )
    for path, folder in _folders(spec):
        if match := re.search(_EXPANDED, folder):
            yield SpecProblem(path, f"`{match[0]}` is not expanded, since no shell reads it; write the full path")
    for name in placeholders(spec.workdir):
        yield SpecProblem(("workdir",), f"`{{{{ {name} }}}}` is not replaced here; write the full path")


def _about_time(spec: Spec) -> Iterator[SpecProblem]:
    for name in ("start", "rendezvous", "run", "progress"):
        if getattr(spec.timeouts, name) == 0:
            yield SpecProblem(
                ("timeouts", name), "a limit of 0 would end the run at once; set a longer one, or remove it"
            )
    if spec.restart.backoff.maximum < spec.restart.backoff.initial:
        written = (("restart", "backoff", "initial"), ("restart", "backoff", "maximum"))
        yield SpecProblem(("restart", "backoff"), "`maximum` is less than `initial`", follows_from=written)


def _about_codes(spec: Spec) -> Iterator[SpecProblem]:
    for index, each in enumerate(spec.restart.permanent):
        first, _, last = each.partition("-")
        if not 1 <= int(first) <= int(last or first) <= 255:
            yield SpecProblem(
                ("restart", "permanent", index),
                "exit codes of failures are 1 to 255, and a range begins with the smaller one",
            )


def _about_success(spec: Spec) -> Iterator[SpecProblem]:
    if spec.success == "chief" and not chief_of(spec):
        yield SpecProblem(
            ("success",),
            "there is no chief that could decide the success; add `chief: 1` to the roles",
            follows_from=(("roles", "chief"), ("roles", "master")),
        )
    if spec.success in ("all-workers", "worker-0") and "worker" not in roles_of(spec):
        yield SpecProblem(
            ("success",), "there are no workers that could decide the success", follows_from=(("roles", "worker"),)
        )


def about_volume(path: Path, volume: Volume) -> Iterator[SpecProblem]:
    """Yield the problems of a volume at this path."""
    if (volume.claim is None) == (volume.size is None):
        yield SpecProblem(path, "set either `claim` for an existing claim, or `size` for a new one")
    elif volume.claim is not None and volume.class_ is not None:
        yield SpecProblem((*path, "class"), "is for a new claim; this one exists already")


def named_roles(spec: Spec) -> Iterator[tuple[str, Role]]:
    """Yield the roles of a spec with their names in the file, such as `master`."""
    for name in _ROLES:
        if role := getattr(spec.roles, name):
            yield name, role


def runs(spec: Spec) -> Iterator[tuple[Path, Run]]:
    """Yield every command of a spec with its path."""
    if spec.run:
        yield ("run",), spec.run
    for name, role in named_roles(spec):
        if role.run:
            yield ("roles", name, "run"), role.run
        if role.first.run:
            yield ("roles", name, "first", "run"), role.first.run
    for path, data in _data(spec):
        if data.prepare:
            yield (*path, "prepare"), data.prepare


def _data(spec: Spec) -> Iterator[tuple[Path, Data]]:
    if isinstance(spec.data, Data):
        yield ("data",), spec.data
    else:
        for index, data in enumerate(spec.data or ()):
            yield ("data", index), data


def _folders(spec: Spec) -> Iterator[tuple[Path, str]]:
    yield ("workdir",), spec.workdir
    for key, folder in (("output", spec.output), ("checkpoint", spec.checkpoint)):
        if folder is not None:
            yield (key,), folder
    for path, data in _data(spec):
        yield (*path, "path"), data.path


def _values(spec: Spec) -> Iterator[tuple[Path, Value]]:
    def at(path: Path, env: Mapping[str, Value]) -> Iterator[tuple[Path, Value]]:
        return (((*path, "env", name), value) for name, value in env.items())

    yield from at((), spec.env)
    for name, role in named_roles(spec):
        yield from at(("roles", name), role.env)
        yield from at(("roles", name, "first"), role.first.env)


def _placeholders(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Yield every placeholder that needs a parameter, with its path."""
    for path, run in runs(spec):
        for command in commands(run):
            yield from ((path, placeholder.name) for placeholder in shell_placeholders(command))
        for word in run.argv or ():
            yield from ((path, name) for name in placeholders(word))
    for path, value in _values(spec):
        yield from ((path, name) for name in placeholders(value.value or ""))
    for path, folder in _folders(spec):
        if path != ("workdir",):
            of_drumline = {"run"} if path in (("output",), ("checkpoint",)) else set()
            yield from ((path, name) for name in placeholders(folder) if name not in of_drumline)
