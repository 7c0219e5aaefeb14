"""``drumline check``: every problem of a spec, or who would run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import click

from drumline.cli.options import PARAMETER_OPTION, SPEC_ARGUMENT, engine_flags
from drumline.cli.terminal import print_json, print_line, print_lines
from drumline.cli.text import FORM_OPTION, table, warn
from drumline.engine.protocol import Interpreter
from drumline.engine.registry import open_engine
from drumline.errors import EngineError, SpecError
from drumline.load.load import Loaded, load
from drumline.plan.bind import bind
from drumline.plan.types import Plan
from drumline.record import Record, to_dict
from drumline.spec.quantity import format_bytes, format_seconds
from drumline.supervise.launch import find_capacity_problems
from drumline.supervise.site import site_of
from drumline.view.groups import ReplicaGroup, count_replicas, group_replicas
from drumline.words import clip, printable


@click.command()
@SPEC_ARGUMENT
@PARAMETER_OPTION
@engine_flags
@FORM_OPTION
def command(
    file: str | None,
    given: tuple[str, ...],
    on: str | None,
    flags: Mapping[str, str],
    form: str,
) -> None:
    """Name every problem of FILE (drumline.yml unless given), or show who would run.

    FILE may be `-` for standard input.
    """
    try:
        loaded = load(file, parameters=given, on=on, flags=flags)
    except SpecError as error:
        if form == "json":
            print_json({"ok": False, "problems": [to_dict(problem) for problem in error.problems]})
        raise
    if form == "json":
        opinion = _ask_engine(loaded)
        print_json(_data(loaded, opinion))
        if opinion.objections:
            raise EngineError("; ".join(opinion.objections))
    else:
        show_plan(loaded)


def show_plan(loaded: Loaded) -> None:
    """Show who would run, and say what is unwise about it."""
    plan = loaded.plan
    warn(*loaded.warnings)
    opinion = _ask_engine(loaded)
    for shortage in opinion.shortages:
        warn(f"{shortage}; `train` refuses that here")
    for remark in opinion.remarks:
        warn(remark)
    verdict = "cannot start" if opinion.objections else "is fine"
    print_line(f"{loaded.source} {verdict}: {plan.name}, {count_replicas(plan)}, {plan.framework}, on {plan.engine}")
    print_line()
    print_lines(table(("REPLICAS", "COMMAND", "CPUS", "MEMORY", "GPUS"), [_cells(row) for row in group_replicas(plan)]))
    print_line()
    print_lines(_notes(plan, opinion.python))
    if opinion.objections:
        raise EngineError("; ".join(opinion.objections))


class _Opinion(Record):
    """What an engine would refuse anywhere, what it has not enough of, and what it would do otherwise than expected."""

    objections: tuple[str, ...] = ()
    shortages: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    python: Interpreter | None = None  # what `python` means, where that is decided here


def _ask_engine(loaded: Loaded) -> _Opinion:
    """What the engine has to say; of one that this version does not have, only a warning."""
    site = site_of(loaded.directory)
    try:
        engine = open_engine(loaded.plan.engine, site)
    except EngineError as error:
        warn(error.message)
        return _Opinion()
    launches = bind(loaded.plan, asyncio.run(engine.place(loaded.plan)))
    shortages = find_capacity_problems(engine, loaded.plan)
    python = site.python if not (loaded.plan.is_elsewhere or loaded.plan.environment) else None
    problems = [*engine.problems(loaded.plan, launches)]
    objections = tuple(each.message for each in problems if not each.is_warning)
    return _Opinion(objections, tuple(shortages), tuple(each.message for each in problems if each.is_warning), python)


def _data(loaded: Loaded, opinion: _Opinion) -> dict[str, object]:
    plan = loaded.plan
    return {
        "ok": not opinion.objections,
        "name": plan.name,
        "framework": plan.framework,
        "engine": plan.engine,
        "parameters": dict(plan.parameters),
        "environment": plan.environment and to_dict(plan.environment),
        "python": opinion.python and to_dict(opinion.python),
        "replicas": [to_dict(row) for row in group_replicas(plan)],
        "warnings": [to_dict(warning) for warning in loaded.warnings],
        "objections": list(opinion.objections),
        "shortages": list(opinion.shortages),
        "remarks": list(opinion.remarks),
    }


def _cells(row: ReplicaGroup) -> tuple[str, ...]:
    def shown(value: float | None) -> str:
        return "-" if value is None else f"{value:g}"

    return (
        row.replicas,
        clip(printable(" ".join(row.command.split())), 70),
        shown(row.cpus),
        "-" if row.memory_bytes is None else format_bytes(row.memory_bytes),
        shown(row.gpus),
    )


def _notes(plan: Plan, python: Interpreter | None) -> list[str]:
    ends = {
        "chief": "when the chief has finished",
        "all-workers": "when all workers have finished",
        "worker-0": "when worker.0 has finished",
    }
    notes = [f"python     {printable(str(each))}" for each in (plan.environment or python,) if each]
    notes.append(f"ends       {ends[plan.success]}")
    budgets = {
        "crash": plan.restart.crash,
        "lost host": plan.restart.lost,
        "preemption": plan.restart.preempted,
        "hang": plan.restart.hang,
        "rendezvous": plan.restart.rendezvous,
        "out of memory": plan.restart.out_of_memory,
        "a crash before the first step": plan.restart.early,
    }
    allowed = [f"{number} for {cause}" for cause, number in budgets.items() if number]
    notes.append(f"restarts   {', '.join(allowed) or 'none'}")
    if plan.timeouts.run_seconds:
        notes.append(f"time limit {format_seconds(plan.timeouts.run_seconds)}")
    if plan.parameters:
        notes.append("parameters " + ", ".join(f"{name}={printable(value)}" for name, value in plan.parameters.items()))
    return notes
