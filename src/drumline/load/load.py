"""Read a spec file, check it and make its plan; all problems are reported together."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from drumline.engine.options import LaunchInput
from drumline.engine.registry import find_options
from drumline.errors import InputError, Problem, SpecError
from drumline.load.engine import all_spec_problems, choose_engine, known_spec_type
from drumline.load.script import find_script_warnings
from drumline.load.shell import find_syntax_errors
from drumline.plan.make import EnginePart, make_plan
from drumline.plan.types import Plan
from drumline.record import Record
from drumline.spec.block import NAME_DESCRIPTION, NAME_PATTERN
from drumline.spec.dialect import read_dialect
from drumline.spec.document import MAX_BYTES
from drumline.spec.read import MAX_PROBLEMS, ReadResult, read_spec
from drumline.spec.requirements import BadRequirement, read_requirements
from drumline.spec.templates import is_jinja_template
from drumline.spec.types import Spec
from drumline.words import listed, nearest, printable

DEFAULT_FILES = ("drumline.yml", "drumline.yaml", "riseml.yml")


class Loaded(Record):
    """A plan with the spec that it was made from, and warnings about both.

    `directory` is the folder of the spec, `source` its name in messages, `data` its content.
    """

    plan: Plan
    directory: str
    source: str
    warnings: tuple[Problem, ...]
    spec: Spec
    data: bytes
    engine_part: EnginePart

    def plan_as(self, run: str) -> Plan:
        """Return the plan for the run of this number."""
        return make_plan(self.spec, self.plan.engine, self.engine_part, run=run).replace(options=self.plan.options)


def load(
    file: str | None,
    *,
    parameters: Sequence[str] = (),
    on: str | None = None,
    name: str | None = None,
    run: str = "0",
    unique: bool = False,
    complete: bool = False,
    flags: Mapping[str, str | None] = MappingProxyType({}),
    already_read: tuple[str, bytes, str] | None = None,
) -> Loaded:
    """Read, check and plan a spec; raise SpecError with all its problems.

    `complete`: a parameter without a value is an error; otherwise its placeholder `{{name}}` stays in the commands.
    `flags`: options of the engine, which take precedence over its block in the spec. `unique`: add random letters to
    the names that the run has on other machines. `already_read`: the result of `read_file`; the file is not read again.
    """
    source, data, directory = already_read or read_file(file)
    spec, warnings = check_spec(data, source, directory, parameters)
    spec = spec if is_jinja_template(data) else _with_parameters(spec, parameters)
    if missing := [name for name, value in spec.parameters.items() if value is None]:
        warnings = (*warnings, _warn_of_missing_values(source, missing, fatal=complete))
    if name is not None:
        spec = spec.with_name(check_name("--name", name))
    typed = {flag: value for flag, value in flags.items() if value is not None}
    engine = choose_engine(spec, on, typed)
    letters = _random_letters() if unique else ""
    adds = LaunchInput(typed, directory, os.environ, letters, _user(os.environ))
    engine_part = find_options(engine).plan(spec, engine, adds)
    plan = make_plan(spec, engine, engine_part, run=run)
    return Loaded(plan, directory, source, (*warnings, *find_script_warnings(plan, directory)), spec, data, engine_part)


def check_spec(
    data: bytes, source: str, directory: str | None = None, parameters: Sequence[str] = ()
) -> tuple[Spec, tuple[Problem, ...]]:
    """Return a valid spec and its warnings; raise SpecError with all problems.

    Requirements files that the spec names are relative to `directory`; without it, they are not read.
    """
    reading = read(data, source, parameters)
    problems = list(reading.problems)
    warnings = list(reading.warnings)
    for each in chain(all_spec_problems(reading.spec), find_syntax_errors(reading.spec)):
        if not any(map(reading.is_invalid, (each.path, *each.follows_from))):
            (problems if each.fatal else warnings).append(reading.problem(each.path, each.message))
        if len(problems) >= MAX_PROBLEMS:
            break
    spec = reading.spec
    if spec.environment and directory and not reading.is_invalid(("environment",)):
        try:
            spec = spec.with_requirements(read_requirements(spec.environment.requirements, Path(directory)))
        except BadRequirement as error:
            path = ("environment", "requirements", *(() if error.index is None else (error.index,)))
            problems.append(reading.problem(path, str(error)))
    if problems:
        raise SpecError(problems)
    return spec, tuple(warnings)


def read(data: bytes, source: str, parameters: Sequence[str] = ()) -> ReadResult:
    """Read a spec or a file of another system; `parameters` are used by templates only."""
    kind = known_spec_type()
    return read_dialect(data, source, kind, parameters) or read_spec(data, source, kind)


def read_file(file: str | None, *, most_bytes: int = MAX_BYTES + 1, is_spec: bool = True) -> tuple[str, bytes, str]:
    """Return the display name of a file, its first bytes, and its folder.

    None means the spec of the current folder, `-` standard input. Raise InputError if it cannot be read.
    """
    if file is None:
        file = next((name for name in DEFAULT_FILES if os.path.lexists(name)), None)
        if file is None:
            raise InputError(f"there is no {DEFAULT_FILES[0]} here", hint="`drumline init` writes one, or name a file")
    source = "<stdin>" if file == "-" else printable(file)
    try:
        if file == "-":
            stream = getattr(sys.stdin, "buffer", None)
            if stream is None:
                raise OSError("it is closed")
            return source, stream.read(most_bytes), _here()
        with open(file, "rb") as stream:  # noqa: PTH123
            data = stream.read(most_bytes)
    except FileNotFoundError:
        hint = "`drumline init` writes a drumline.yml" if is_spec else ""
        raise InputError(f"{source}: no such file", hint=hint) from None
    except IsADirectoryError:
        inside = printable(os.path.normpath(os.path.join(file, DEFAULT_FILES[0])))  # noqa: PTH118
        hint = f"name a file, such as `{inside}`" if is_spec else "name a file in it"
        raise InputError(f"{source}: is a directory", hint=hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{source}: cannot be read: {reason}") from None
    if is_spec and file.endswith(".py"):
        hint = f"write `run: python {source}` into a drumline.yml; `drumline init` writes an example"
        raise InputError(f"{source}: a Python script, not a spec", hint=hint)
    return source, data, _folder_of(file)


def _folder_of(file: str) -> str:
    folder = os.path.dirname(file)  # noqa: PTH120
    return folder if folder.startswith("/") else os.path.join(_here(), folder) if folder else _here()  # noqa: PTH118


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        raise InputError("the current folder has been deleted", hint="`cd` to another folder") from None


def _with_parameters(spec: Spec, parameters: Sequence[str]) -> Spec:
    return spec.with_parameters({**spec.parameters, **parse_parameters(parameters, spec.parameters)})


def parse_parameters(parameters: Sequence[str], known: Mapping[str, object]) -> dict[str, str]:
    """Return the values of NAME=VALUE items by name; raise InputError for an unknown name."""
    values: dict[str, str] = {}
    for item in parameters:
        name, separator, value = item.partition("=")
        if not separator:
            raise InputError(f"-p {printable(item)}: expected NAME=VALUE")
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean `{near}`?" if near else f"the spec has: {', '.join(known) or 'none'}"
            raise InputError(f"-p {printable(item)}: the spec has no parameter `{printable(name)}`", hint=hint)
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise InputError(f"-p {printable(item)}: the value is not UTF-8")
        values[name] = value
    return values


def _warn_of_missing_values(source: str, missing: Sequence[str], *, fatal: bool) -> Problem:
    """Return a warning about parameters without a value; raise it as InputError if `fatal`."""
    message = f"{listed([f'`{name}`' for name in missing])} {'has' if len(missing) == 1 else 'have'} no value"
    hint = " ".join(f"-p {name}=…" for name in missing)
    if fatal:
        raise InputError(f"{source}: {message}", hint=f"set {'it' if len(missing) == 1 else 'them'}: `{hint}`")
    return Problem(source, None, "", f"{message}; to train, add `{hint}`")


def check_name(option: str, name: str) -> str:
    """Return a valid name of a project or run; raise InputError for an invalid one."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise InputError(f"{option} {printable(name)}: expected {NAME_DESCRIPTION}")
    return name


def _random_letters() -> str:
    """Return five random letters; two runs get the same with a probability of one in fourteen million."""
    letters = "bcdfghjklmnpqrstvwxz2456789"
    return "".join(letters[byte % len(letters)] for byte in os.urandom(5))


def _user(environ: Mapping[str, str]) -> str:
    """Return the name of the user that starts the run."""
    return environ.get("USER") or environ.get("LOGNAME") or f"uid-{os.getuid()}"
