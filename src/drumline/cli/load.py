"""From a file's name to a plan, with every problem on the way reported at once."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from drumline.cli.text import warn
from drumline.engine.protocol import Site
from drumline.errors import InputError, Problem, SpecError
from drumline.plan.make import make_plan
from drumline.plan.rules import findings
from drumline.plan.types import Plan
from drumline.spec.document import MAX_BYTES
from drumline.spec.read import read_spec
from drumline.spec.types import Spec
from drumline.store.home import home_of

DEFAULT_FILES = ("drumline.yml", "drumline.yaml")


class Loaded(NamedTuple):
    """A plan, the world it was read in, and what is unwise about it."""

    plan: Plan
    site: Site
    source: str
    warnings: tuple[Problem, ...]
    spec: Spec
    data: bytes

    def plan_as(self, run: str) -> Plan:
        """The same plan as the run of this number."""
        return make_plan(self.spec, run=run, engine=self.plan.engine)


def load(file: str | None, *, given: Sequence[str] = (), on: str | None = None, run: str = "0") -> Loaded:
    """Read, check and plan a spec; raise SpecError with all its problems."""
    source, data, directory = _read_file(file)
    reading = read_spec(data, source)
    problems = list(reading.problems)
    spec = reading.spec
    if not reading.is_bad(("parameters",)):
        spec = _with_parameters(spec, given)
    warnings: list[Problem] = []
    for finding in findings(spec):
        if not reading.is_bad(finding.path):
            (problems if finding.fatal else warnings).append(reading.problem(finding.path, finding.message))
    if problems:
        raise SpecError(problems)
    return Loaded(make_plan(spec, run=run, engine=on), _site(directory), source, tuple(warnings), spec, data)


def _read_file(file: str | None) -> tuple[str, bytes, Path]:
    if file == "-":
        return "<stdin>", sys.stdin.buffer.read(MAX_BYTES + 1), Path.cwd()
    if file is None:
        file = next((name for name in DEFAULT_FILES if Path(name).exists()), None)
        if file is None:
            raise InputError(f"there is no {DEFAULT_FILES[0]} here", hint="`drumline init` writes one, or name a file")
    path = Path(file)
    try:
        with path.open("rb") as stream:
            return file, stream.read(MAX_BYTES + 1), path.parent.absolute()
    except FileNotFoundError:
        raise InputError(f"{file}: no such file", hint="`drumline init` writes a drumline.yml") from None
    except IsADirectoryError:
        hint = (
            f"is it `{path / DEFAULT_FILES[0]}` that you mean?"
            if (path / DEFAULT_FILES[0]).exists()
            else "name a file in it"
        )
        raise InputError(f"{file}: is a directory", hint=hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{file}: cannot be read: {reason}") from None


def _with_parameters(spec: Spec, given: Sequence[str]) -> Spec:
    values = dict(spec.parameters)
    for item in given:
        name, separator, value = item.partition("=")
        if not separator:
            raise InputError(f"-p {item}: expected NAME=VALUE")
        if name not in values:
            near = difflib.get_close_matches(name, values, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"the spec has: {', '.join(values) or 'none'}"
            raise InputError(f"-p {item}: the spec has no parameter `{name}`", hint=hint)
        values[name] = value
    return spec.with_parameters(values)


def _site(directory: Path) -> Site:
    python_dir = str(Path(sys.executable).parent)
    usual = shutil.which("python")
    same = usual is not None and Path(usual).parent == Path(python_dir)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Site(directory, home_of(os.environ), cores, None if same else python_dir)


def show_warnings(loaded: Loaded) -> None:
    """Say what is unwise, on stderr."""
    for warning in loaded.warnings:
        warn(warning)


SPEC_ARGUMENT = click.argument("file", required=False, type=click.Path(allow_dash=True))
PARAMETER_OPTION = click.option(
    "-p", "--parameter", "given", multiple=True, metavar="NAME=VALUE", help="Set a parameter."
)
ON_OPTION = click.option(
    "--on",
    type=click.Choice(["local", "ssh", "kubernetes", "jobset", "tfjob"]),
    help="The engine, instead of the spec's.",
)
