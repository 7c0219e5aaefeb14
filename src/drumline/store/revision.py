"""The code from which a run was launched: the git revision of its folder, and whether there were changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

_TIMEOUT_SECONDS = 10
# The settings of a repository can name programs that `git status` would start. These options disable them.
_START_NOTHING = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")


def code_facts(directory: Path) -> dict[str, object]:
    """Return `revision` and `dirty` of a folder; empty without git or a repository, or after a timeout."""
    revision = _git(directory, "rev-parse", "HEAD")
    if not revision:
        return {}
    changes = _git(directory, "status", "--porcelain", "--untracked-files=no")
    return {"revision": revision, "dirty": None if changes is None else bool(changes)}


def _git(directory: Path, *arguments: str) -> str | None:
    command = ["git", *_START_NOTHING, "--no-optional-locks", "-C", str(directory), *arguments]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
