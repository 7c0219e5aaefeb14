"""The spec block of the engine `fake`: it has no keys, and no spec can have it."""

from collections.abc import Iterator

from drumline.engine.options import Flag, LaunchInput
from drumline.plan.make import EnginePart
from drumline.plan.rules import SpecProblem
from drumline.spec.block import Block
from drumline.spec.types import Spec


class FakeOptions(Block, frozen=True):
    """No options."""


Options = FakeOptions
FLAGS: tuple[Flag, ...] = ()


def plan(spec: Spec, engine: str, given: LaunchInput) -> EnginePart:
    """Return this engine's part of a plan."""
    del spec, engine, given
    return EnginePart()


def problems(spec: Spec, engine: str) -> Iterator[SpecProblem]:
    """Yield nothing."""
    del spec, engine
    return iter(())
