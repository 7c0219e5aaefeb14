"""The output of a run on this machine: a folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from drumline.engine.output import RunOutput
from drumline.engine.project.copy import copy
from drumline.engine.project.tree import left_out_warning
from drumline.errors import EngineError, NotFoundError


class Folder:
    """The output folder of a run."""

    def __init__(self, run_output: RunOutput, *, trusted: bool = True) -> None:
        """Use a folder of this machine; a folder with files that were received from hosts is not `trusted`."""
        self._run = run_output.plan.run
        self._folder = run_output.folder
        self._trusted = trusted

    def run_command(self, argv: Sequence[str]) -> int:
        """Run a command, or a shell if `argv` is empty, in the folder; return its exit code, 128 + N for signal N."""
        self._require(self._folder)
        words = list(argv) or [os.environ.get("SHELL") or "sh"]
        env = {**os.environ, "OUTPUT_DIR": str(self._folder)}
        try:
            code = subprocess.run(words, cwd=self._folder, env=env, check=False).returncode
        except OSError as error:
            raise EngineError(f"cannot run {words[0]}: {error.strerror}") from None
        return code if code >= 0 else 128 - code

    def fetch(self, path: str, into: Path) -> Sequence[str]:
        """Copy a file or folder out of the output folder; return warnings about what was left out."""
        left_out = copy(self._require(self._folder / path), into, trusted=self._trusted)
        return [left_out_warning(left_out)] if left_out else []

    def put(self, source: Path, path: str) -> None:
        """Copy a file or folder into the output folder."""
        self._require(self._folder)
        copy(source, self._folder / path, trusted=True)

    def _require(self, path: Path) -> Path:
        if not os.path.lexists(path):
            raise NotFoundError(
                f"run {self._run} has no {path}", hint=f"`drumline inspect {self._run} ls` lists what it has"
            )
        return path


def open_output(run_output: RunOutput) -> Folder:
    """Return the output of a run."""
    return Folder(run_output)
