"""The interface of an engine's module `options`: the engine's block of the spec, and its part of a plan.

Only the engine's own package reads this block, and the engine's options in a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from drumline.plan.make import EnginePart
from drumline.plan.rules import SpecProblem
from drumline.record import Record
from drumline.spec.block import Block
from drumline.spec.types import Spec


class Flag(Record):
    """An option of the command line that replaces a key in an engine's block of the spec."""

    name: str
    metavar: str
    help: str
    used_for: str  # in messages: `--context is for clusters`
    chooses: bool = False  # without `--on`, this option chooses the engine
    letter: str | None = None


class LaunchInput(Record):
    """The values that the launching command adds to a spec."""

    flags: Mapping[str, str] = MappingProxyType({})  # the engine's flags on the command line, by name
    directory: str = "."  # of the spec
    environ: Mapping[str, str] = MappingProxyType({})
    unique: str = ""  # a few random letters that make names of two runs distinct; empty if nothing is launched
    user: str = ""


class EngineOptions(Protocol):
    """The module `options` of an engine; several engines may share one."""

    Options: type[Block]
    FLAGS: Sequence[Flag]

    def plan(self, spec: Spec, engine: str, given: LaunchInput) -> EnginePart:
        """Return the engine's part of a plan; raise InputError for flags that cannot be used."""
        ...

    def problems(self, spec: Spec, engine: str) -> Iterator[SpecProblem]:
        """Yield problems and warnings of the engine's block, with their location in the spec."""
        ...
