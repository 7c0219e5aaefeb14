"""``drumline check``: every problem of a spec, or its replicas."""

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
    """List every problem of FILE (default: drumline.yml), or show the replicas that would run.

    FILE may be `-` for standard input.
    """
    try:
        loaded = load(file, parameters=given, on=on, flags=flags)
    except SpecError as error:
        if form == "json":
            print_json({"ok": False, "problems": [to_dict(problem) for problem in error.problems]})
        raise
    if form == "json":
        answer = _ask_engine(loaded)
        print_json(_data(loaded, answer))
        if answer.problems:
            raise EngineError("; ".join(answer.problems))
    else:
        show_plan(loaded)


def show_plan(loaded: Loaded) -> None:
    """Print the replicas of a plan, with warnings; raise EngineError if it cannot start."""
    plan = loaded.plan
    warn(*loaded.warnings)
    answer = _ask_engine(loaded)
    for each in answer.lacking:
        warn(f"{each}; `drumline train` would refuse this here")
    warn(*answer.warnings)
    verdict = "cannot start" if answer.problems else "is fine"
    print_line(f"{loaded.source} {verdict}: {plan.name}, {count_replicas(plan)}, {plan.framework}, on {plan.engine}")
    print_line()
    print_lines(table(("REPLICAS", "COMMAND", "CPUS", "MEMORY", "GPUS"), [_cells(row) for row in group_replicas(plan)]))
    print_line()
    print_lines(_notes(plan, answer.python))
    if answer.problems:
        raise EngineError("; ".join(answer.problems))


class _Answer(Record):
    """The engine's problems with a plan, the resources that it lacks here, and its warnings."""

    problems: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    python: Interpreter | None = None  # the interpreter of the replicas, if this machine chooses it


def _ask_engine(loaded: Loaded) -> _Answer:
    """Return the problems and warnings of the engine about a plan; warn if the engine is not installed."""
    site = site_of(loaded.directory)
    try:
        engine = open_engine(loaded.plan.engine, site)
    except EngineError as error:
        warn(error.message)
        return _Answer()
    launches = bind(loaded.plan, asyncio.run(engine.place(loaded.plan)))
    lacking = tuple(find_capacity_problems(engine, loaded.plan))
    python = site.python if not (loaded.plan.is_elsewhere or loaded.plan.environment) else None
    found = [*engine.problems(loaded.plan, launches)]
    problems = tuple(each.message for each in found if not each.is_warning)
    return _Answer(problems, lacking, tuple(each.message for each in found if each.is_warning), python)


def _data(loaded: Loaded, answer: _Answer) -> dict[str, object]:
    plan = loaded.plan
    return {
        "ok": not answer.problems,
        "name": plan.name,
        "framework": plan.framework,
        "engine": plan.engine,
        "parameters": dict(plan.parameters),
        "environment": plan.environment and to_dict(plan.environment),
        "python": answer.python and to_dict(answer.python),
        "replicas": [to_dict(row) for row in group_replicas(plan)],
        "warnings": [to_dict(warning) for warning in loaded.warnings],
        "objections": list(answer.problems),
        "shortages": list(answer.lacking),
        "remarks": list(answer.warnings),
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
    """Return lines about the Python, the end, the restarts and the parameters of a run."""
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
