"""``drumline doctor``: check that an engine has what a run needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from drumline.cli.options import PARAMETER_OPTION, SPEC_ARGUMENT, engine_flags
from drumline.cli.terminal import print_hint, print_json, print_lines
from drumline.cli.text import FORM_OPTION, table
from drumline.cli.waiting import waiting_notice
from drumline.engine.abilities import Diagnosable, require
from drumline.engine.doctor_checks import MISSING, DoctorCheck, DoctorTarget
from drumline.engine.registry import open_engine
from drumline.load.engine import engine_without_spec
from drumline.load.load import DEFAULT_FILES, load
from drumline.record import to_dict
from drumline.supervise.site import site_of


@click.command()
@SPEC_ARGUMENT
@PARAMETER_OPTION
@engine_flags
@FORM_OPTION
@click.pass_context
def command(
    ctx: click.Context,
    file: str | None,
    given: tuple[str, ...],
    on: str | None,
    flags: Mapping[str, str],
    form: str,
) -> None:
    """Check the machine, hosts or cluster where FILE (default: drumline.yml) would run, and report what is missing.

    Without a spec, check only the engine: this machine, unless --on names another. The exit code is 1 if something
    that is needed is missing.
    """
    target = _target(file, given, on, flags)
    engine = require(open_engine(target.engine, target.site), Diagnosable, "doctor", target.engine)
    with waiting_notice(f"checking {target.where}..."):
        found = list(engine.diagnose(target))
    if form == "json":
        print_json([to_dict(each) for each in found])
    else:
        print_lines(table(("WHAT", "STATE", "FOUND"), [_cells(each) for each in found]))
        for each in found:
            if each.hint:
                print_hint(f"{each.subject}: {each.hint}")
    ctx.exit(1 if any(each.verdict == MISSING for each in found) else 0)


def _target(file: str | None, given: tuple[str, ...], on: str | None, flags: Mapping[str, str]) -> DoctorTarget:
    if file is None and not given and not any(os.path.lexists(name) for name in DEFAULT_FILES):
        site = site_of(Path.cwd())
        engine, part = engine_without_spec(on, flags, str(site.directory), os.environ)
        return DoctorTarget(engine, site, where=part.where, options=part.options)
    loaded = load(file, parameters=given, on=on, flags=flags)
    return DoctorTarget(
        loaded.plan.engine, site_of(loaded.directory), loaded.plan, loaded.plan.where, loaded.plan.options
    )


def _cells(check: DoctorCheck) -> tuple[str, str, str]:
    return check.subject, check.verdict, " ".join(check.words.split())
