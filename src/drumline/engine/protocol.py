"""What every engine can do, and what it needs to know of the world."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from drumline.plan.types import Launch, Placement, Plan


@dataclass(frozen=True, slots=True)
class Site:
    """The world as an engine may see it: whose folder, which machine."""

    directory: Path  # of the spec; relative paths in it start here
    home: Path
    cores: int
    python_dir: str | None = None  # to be put in front of PATH, where `python` would be another one


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What differs between engines, as data."""

    forms: tuple[str, ...]  # in which `render` can write, the usual one first


class Engine(Protocol):
    """A place that can run a line."""

    capabilities: Capabilities

    def place(self, plan: Plan) -> Placement:
        """Say where each replica will be reached and write; raise InputError if the plan cannot fit there."""
        ...

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Write what would be started, exactly; the first half of starting it."""
        ...

    def objections(self, launches: Sequence[Launch]) -> Iterator[str]:
        """Say what this engine would refuse to start."""
        ...
