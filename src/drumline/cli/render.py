"""``drumline render``: exactly what would run."""

from __future__ import annotations

import os
import re

import click

from drumline.cli.load import (
    CONTEXT_OPTION,
    HOSTS_OPTION,
    NAMESPACE_OPTION,
    ON_OPTION,
    PARAMETER_OPTION,
    SPEC_ARGUMENT,
    load,
    show_warnings,
)
from drumline.cli.text import warn
from drumline.engine.registry import open_engine
from drumline.errors import InputError
from drumline.plan.bind import bind


@click.command()
@SPEC_ARGUMENT
@PARAMETER_OPTION
@ON_OPTION
@HOSTS_OPTION
@CONTEXT_OPTION
@NAMESPACE_OPTION
@click.option("-o", "--output", "form", type=click.Choice(["shell", "json", "yaml"]), help="How to write it.")
@click.option("--run-id", metavar="N", help="The run's number in what is written.")
def command(
    file: str | None,
    given: tuple[str, ...],
    on: str | None,
    hosts: str | None,
    context: str | None,
    namespace: str | None,
    form: str | None,
    run_id: str | None,
) -> None:
    """Print exactly what FILE (drumline.yml unless given) would run, and nothing else, on stdout.

    For the local engine that is a shell script with each replica's environment; start each replica in a
    terminal of its own.
    """
    if run_id is not None and not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", run_id):
        raise InputError(f"--run-id {run_id}: expected a number such as 4, or 7.2 in a sweep")
    loaded = load(
        file,
        given=given,
        on=on,
        run=run_id or "0",
        context=context,
        namespace=namespace,
        hosts=hosts,
        unique=run_id is None,
    )
    engine = open_engine(loaded.plan.engine, loaded.site)
    form = form or engine.capabilities.forms[0]
    if form not in engine.capabilities.forms:
        raise InputError(
            f"-o {form}: `{loaded.plan.engine}` cannot be written so",
            hint=f"use {' or '.join(engine.capabilities.forms)}",
        )
    launches = bind(loaded.plan, engine.place(loaded.plan))
    engine.close()
    show_warnings(loaded)
    for shortage in engine.shortages(loaded.plan):
        warn(f"{shortage}; `train` refuses that here")
    for remark in engine.remarks():
        warn(remark)
    for objection in engine.objections(launches):
        warn(objection)
    # As bytes: what a file's name or a value is made of need not fit the terminal's encoding.
    click.echo(os.fsencode(engine.render(loaded.plan, launches, form)), nl=False)
