"""Interfaces for the output and the volumes of a run: inspect, copy, remove."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from drumline.plan.types import Plan
from drumline.record import Record


class Volume(Record):
    """Storage that remains when a run is removed, and can be deleted."""

    name: str
    kind: str  # as in `deleted the claim …`
    words: str  # a description for the user, shown before the volume is deleted


class Output(Protocol):
    """The output of one run. Paths are relative to its OUTPUT_DIR, or absolute on the machine of the replicas."""

    def run_command(self, argv: Sequence[str]) -> int:
        """Run a command in the output folder, a shell by default; return its exit code.

        Raise EngineError if the command cannot be started.
        """
        ...

    def fetch(self, path: str, into: Path) -> Sequence[str]:
        """Copy a file or folder to this machine, as `cp -r` would; return warnings.

        Raise NotFoundError if the path does not exist.
        """
        ...

    def put(self, source: Path, path: str) -> None:
        """Copy a file or folder of this machine into the output, as `cp -r` would."""
        ...


class Volumes(Protocol):
    """The volumes that were made for one run."""

    def volumes(self) -> Sequence[Volume]:
        """Return the volumes that still exist."""
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Delete the volumes of these names with their content; return when they are deleted."""
        ...


class RunOutput(Record):
    """The plan of a run and its folders on this machine."""

    plan: Plan
    folder: Path  # the run's OUTPUT_DIR, if it is on this machine
    run_dir: Path = Path()  # drumline's own folder of the run


def retained_output(run_output: RunOutput) -> Iterator[str]:
    """Yield a description of the output folder that remains when the run's own folder is removed."""
    if run_output.plan.output and not run_output.folder.is_relative_to(run_output.run_dir):
        yield f"its output stays in {run_output.folder}"
