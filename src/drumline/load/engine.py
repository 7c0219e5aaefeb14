"""Choose the engine of a run, and make a plan that includes the options of this engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from drumline.engine.options import LaunchInput
from drumline.engine.registry import engine_options, find_options
from drumline.errors import EngineError, InputError
from drumline.plan.make import EnginePart, make_plan
from drumline.plan.rules import SpecProblem, spec_problems
from drumline.plan.types import Plan
from drumline.spec.block import Block
from drumline.spec.extend import spec_type
from drumline.spec.types import Spec


@cache
def known_spec_type() -> type[Spec]:
    """Return the type of a spec that may have a block for every engine that is installed."""
    blocks = {name: each.Options for name, each in engine_options().items()}
    for name, block in blocks.items():
        if not (isinstance(block, type) and issubclass(block, Block)):
            raise EngineError(f"the engine `{name}` cannot be used: its `Options` is not a Block: {block!r}")
    return spec_type(blocks)


def all_spec_problems(spec: Spec) -> Iterator[SpecProblem]:
    """Yield the problems and warnings of a spec, also those in the blocks of engines."""
    yield from spec_problems(spec)
    for name, each in engine_options().items():
        yield from each.problems(spec, name)


def choose_engine(spec: Spec, on: str | None, flags: Mapping[str, str]) -> str:
    """Return the engine `on`; without it, the engine of a flag such as `--hosts`; without both, that of the spec.

    `flags` are the engine options on the command line. Raise InputError for an option of another engine.
    """
    known = [(name, flag) for name, each in engine_options().items() for flag in each.FLAGS]
    chosen = next((name for name, flag in known if flag.chooses and flag.name in flags), None)
    engine = on or chosen or spec.engine.chosen
    for name, flag in known:
        if flag.name in flags and flag.name not in {each.name for each in find_options(engine).FLAGS}:
            hint = f"leave out `--on`, or use `--on {name}`" if flag.chooses else f"add `--on {name}`"
            raise InputError(f"--{flag.name} is for {flag.used_for}, but this runs on {engine}", hint=hint)
    return engine


def plan_spec(spec: Spec, *, on: str | None = None, run: str = "0", given: LaunchInput | None = None) -> Plan:
    """Return the plan of a spec on the engine `on`, by default that of the spec; raise InputError if there is none."""
    engine = on or spec.engine.chosen
    return make_plan(spec, engine, find_options(engine).plan(spec, engine, given or LaunchInput()), run=run)


def engine_without_spec(
    on: str | None, flags: Mapping[str, str], directory: str, environ: Mapping[str, str]
) -> tuple[str, EnginePart]:
    """Return the engine that the command line chooses without a spec, and the engine's part of a plan."""
    spec = known_spec_type()(project="none")
    engine = choose_engine(spec, on, flags)
    return engine, find_options(engine).plan(spec, engine, LaunchInput(flags, directory, environ))
