"""The output of a run on this machine: a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from drumline.engine.output import Volume, Written
from drumline.errors import EngineError, NotFoundError


class Folder:
    """The folder into which a run wrote."""

    def __init__(self, written: Written) -> None:
        self._run = written.plan.run
        self._folder = written.folder

    def visit(self, argv: Sequence[str]) -> int:
        """Run a command in the folder."""
        self._require(self._folder)
        words = list(argv) or [os.environ.get("SHELL") or "sh"]
        env = {**os.environ, "OUTPUT_DIR": str(self._folder)}
        try:
            code = subprocess.run(words, cwd=self._folder, env=env, check=False).returncode
        except OSError as error:
            raise EngineError(f"cannot run {words[0]}: {error.strerror}") from None
        return code if code >= 0 else 128 - code

    def fetch(self, path: str, into: Path) -> None:
        """Copy from the folder."""
        copy(self._require(self._folder / path), into)

    def put(self, source: Path, path: str) -> None:
        """Copy into the folder."""
        self._require(self._folder)
        copy(source, self._folder / path)

    def volumes(self) -> Sequence[Volume]:
        """None: what a run writes into its own folder goes with it, and what its spec names is its user's."""
        return ()

    def remove(self, names: Sequence[str]) -> None:
        """There is nothing to remove."""

    def _require(self, path: Path) -> Path:
        if not os.path.lexists(path):
            raise NotFoundError(
                f"run {self._run} has no {path}", hint=f"`drumline inspect {self._run} ls` lists what it has"
            )
        return path


def copy(source: Path, target: Path) -> None:
    """Copy a file or folder as `cp -r` does: into a folder that is there, else under this name; raise EngineError."""
    source = source if source.is_symlink() else source.resolve()
    if target.is_dir():
        target = target if source.name == "" else target / source.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target, follow_symlinks=False)
    except shutil.Error as error:
        first = error.args[0][0]
        raise EngineError(f"cannot copy {first[0]}: {first[2]}") from None
    except OSError as error:
        raise EngineError(f"cannot copy {source} to {target}: {error.strerror}") from None


def open_output(written: Written) -> Folder:
    """The output of a run."""
    return Folder(written)
