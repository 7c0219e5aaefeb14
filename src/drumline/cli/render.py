"""``drumline render``: exactly what would run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

import click

from drumline.cli.options import PARAMETER_OPTION, SPEC_ARGUMENT, engine_flags
from drumline.cli.terminal import print_document
from drumline.cli.text import warn
from drumline.engine.registry import open_engine
from drumline.errors import InputError, SpecError
from drumline.load.load import load, read_file
from drumline.plan.bind import bind
from drumline.spec.document import decode, parse_several
from drumline.spec.templates import is_jinja_template
from drumline.supervise.launch import find_capacity_problems
from drumline.supervise.site import site_of


@click.command()
@SPEC_ARGUMENT
@PARAMETER_OPTION
@engine_flags
@click.option("--run-id", metavar="N", help="The number of the run in the output.")
@click.option("-o", "--output", "form", type=click.Choice(["shell", "json", "yaml"]), help="How to print it.")
def command(
    file: str | None,
    given: tuple[str, ...],
    on: str | None,
    flags: Mapping[str, str],
    form: str | None,
    run_id: str | None,
) -> None:
    """Print exactly what FILE (default: drumline.yml) would run.

    For the local engine this is a shell script with the environment of each replica; start each replica in a terminal
    of its own. A Jinja template that sets its parameters at the top is rendered as it is, unless --on is given.
    """
    if run_id is not None and not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", run_id):
        raise InputError(f"--run-id {run_id}: expected a number such as 4, or 7.2 in a sweep")
    found = read_file(file)
    if is_jinja_template(found[1]) and not on and not flags:
        _render_template(*found[:2], given, form)
        return
    loaded = load(
        file,
        already_read=found,
        parameters=given,
        on=on,
        run=run_id or "0",
        flags=flags,
        unique=run_id is None,
    )
    engine = open_engine(loaded.plan.engine, site_of(loaded.directory))
    form = form or engine.capabilities.forms[0]
    if form not in engine.capabilities.forms:
        raise InputError(
            f"-o {form}: `{loaded.plan.engine}` does not support this format",
            hint=f"use {' or '.join(engine.capabilities.forms)}",
        )
    launches = bind(loaded.plan, asyncio.run(engine.place(loaded.plan)))
    warn(*loaded.warnings)
    for problem in find_capacity_problems(engine, loaded.plan):
        warn(f"{problem}; `drumline train` would refuse this here")
    warn(*(problem.message for problem in engine.problems(loaded.plan, launches)))
    print_document(engine.render(loaded.plan, launches, form))


def _render_template(source: str, data: bytes, given: tuple[str, ...], form: str | None) -> None:
    """Print a rendered template; warn if the result is not YAML."""
    from drumline.spec.dialect.jinja import Template  # noqa: PLC0415 - jinja2 is an extra

    if form not in (None, "yaml"):
        raise InputError(f"-o {form}: a template determines its own format", hint="leave out `-o`, or add `--on`")
    template = Template(decode(data, source), source, given)
    template.check()
    text = template.render()
    try:
        if not parse_several(text.encode(), source):
            warn(f"{source}: renders to nothing: none of its parts is switched on")
    except SpecError as error:
        where = error.problems[0]
        warn(f"{source}: renders to text that is not valid YAML: line {where.line}: {where.message}")
    print_document(f"{text}\n")
