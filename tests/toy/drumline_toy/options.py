"""The toy's block of the spec, and its part of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, cast

from drumline.engine.options import Flag, LaunchInput
from drumline.errors import InputError
from drumline.plan.make import EnginePart
from drumline.plan.rules import SpecProblem
from drumline.spec.block import Block
from drumline.spec.struct import Meta
from drumline.spec.types import Spec

_MOST = 19


class ToyOptions(Block, frozen=True):
    """Replicas that the toy's agent starts."""

    nice: Annotated[int, Meta(ge=0, le=_MOST, description="By how much the replicas give way to others")] = 0
    supervisor: Annotated[str, Meta(description="The folder of the server that starts supervisors; none: here")] = ""


Options = ToyOptions
FLAGS = (Flag("nice", "N", "The toy's `nice`, instead of the spec's.", "the toy"),)


def plan(spec: Spec, engine: str, given: LaunchInput) -> EnginePart:
    """Return the toy's part of a plan."""
    options = cast("ToyOptions | None", spec.engine.options(engine)) or ToyOptions()
    typed = given.flags.get("nice")
    if typed is not None and not (typed.isdecimal() and int(typed) <= _MOST):
        raise InputError(f"--nice {typed}: expected a number from 0 to {_MOST}")
    nice = options.nice if typed is None else int(typed)
    part = EnginePart({"nice": nice, "supervisor": options.supervisor}, where="the toy's corner")
    return part.replace(where=options.supervisor, is_elsewhere=True) if options.supervisor else part


def problems(spec: Spec, engine: str) -> Iterator[SpecProblem]:
    """Yield warnings about the block."""
    options = cast("ToyOptions | None", spec.engine.options(engine))
    if options and options.nice == _MOST:
        yield SpecProblem(("engine", engine, "nice"), "leaves the replicas next to nothing", fatal=False)
