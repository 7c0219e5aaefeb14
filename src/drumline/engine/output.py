"""What a run has written, wherever that is: to look at, to copy, to remove."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from drumline.plan.types import Plan
from drumline.record import Record


class Volume(Record):
    """Something that stays when a run is forgotten, and can be removed: its name, and what it is in words."""

    name: str
    words: str


class Output(Protocol):
    """What one run has written. Paths are relative to its OUTPUT_DIR, or absolute where replicas run."""

    def visit(self, argv: Sequence[str]) -> int:
        """Run a command beside it, a shell if none is named, and return its exit code; raise EngineError."""
        ...

    def fetch(self, path: str, into: Path) -> Sequence[str]:
        """Copy a file or folder to this machine, as `cp -r` would, and return warnings; raise NotFoundError."""
        ...

    def put(self, source: Path, path: str) -> None:
        """Copy a file or folder of this machine there, as `cp -r` would."""
        ...

    def volumes(self) -> Sequence[Volume]:
        """What was made for the run and is still there."""
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Remove these, with all that is on them; return when they are gone."""
        ...


class Written(Record):
    """Whose output it is, and where this machine would have it."""

    plan: Plan
    folder: Path  # the run's OUTPUT_DIR, if it ran here
    run_dir: Path = Path()  # drumline's own folder of the run
