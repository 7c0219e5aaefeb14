"""Shell completion of run ids; imported only for completion."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click
from click.shell_completion import CompletionItem

from drumline.errors import DrumlineError
from drumline.store.access import open_home
from drumline.store.clock import read_clock
from drumline.store.folder import find_folder
from drumline.view.runs import RunRow, recent_runs
from drumline.words import printable

_MOST_RUNS = 100

# Whether the runs that a command takes must be over; other commands take all runs.
_MUST_BE_OVER = {"kill": False, "drill": False, "supervise": False, "wait": False, "rm": True, "resume": True}
# Commands that take ids of runs, and not of replicas.
_RUNS_ONLY = {"kill", "rm", "resume", "wait", "supervise", "inspect", "tensorboard", "cp", "drill"}


class RunIds(click.types.StringParamType):
    """The type of an id argument; a shell completes it with the ids of existing runs."""

    name = "id"

    def __init__(self, command: str, *, end: str = "", files_too: bool = False) -> None:
        self._command = command
        self._end = end
        self._files_too = files_too

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the runs that this command takes, newest first; after `4.`, the replicas of run 4."""
        try:
            found = list(self._runs(incomplete) if "." not in incomplete else self._replicas(incomplete))
        except (DrumlineError, OSError):  # a shell cannot show an error during completion
            found = []
        return [*found, *([CompletionItem(incomplete, type="file")] if self._files_too else [])]

    def _runs(self, incomplete: str) -> Iterator[CompletionItem]:
        for row in recent_runs(open_home(os.environ), read_clock(), limit=_MOST_RUNS).runs:
            over = _MUST_BE_OVER.get(self._command, row.summary.is_final)
            if row.summary.id.startswith(incomplete) and row.summary.is_final == over:
                yield CompletionItem(printable(row.summary.id) + self._end, help=_about(row))

    def _replicas(self, incomplete: str) -> Iterator[CompletionItem]:
        if self._command not in _RUNS_ONLY:
            run = incomplete.partition(".")[0]
            for replica in find_folder(open_home(os.environ), run).plan().all_ids:
                if f"{run}.{replica}".startswith(incomplete):
                    yield CompletionItem(f"{run}.{replica}")


def complete_run_ids(name: str, command: click.Command) -> None:
    """Let the shell complete those arguments of a command that are ids of runs."""
    for parameter in command.params:
        if not isinstance(parameter, click.Argument):
            continue
        if "ID" in (parameter.metavar or ""):
            parameter.type = RunIds(name, files_too="FILE" in (parameter.metavar or ""))
        elif name == "cp":
            parameter.type = RunIds(name, end=":", files_too=True)


def _about(row: RunRow) -> str:
    return printable(f"{row.summary.name} {row.summary.phase}")  # fish cuts the text at a comma
