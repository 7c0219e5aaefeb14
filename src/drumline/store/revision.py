"""Which code a run was launched from: the git revision of its folder, and whether it had been changed since."""

from __future__ import annotations

import subprocess
from pathlib import Path

_PATIENCE_SECONDS = 10
# The settings of a repository can name programs that `git status` starts: none of these is needed here.
_START_NOTHING = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")


def code_facts(directory: Path) -> dict[str, object]:
    """Return the revision and whether it was dirty; nothing where there is no git, or it does not answer."""
    revision = _git(directory, "rev-parse", "HEAD")
    if not revision:
        return {}
    changes = _git(directory, "status", "--porcelain", "--untracked-files=no")
    return {"revision": revision, "dirty": None if changes is None else bool(changes)}


def _git(directory: Path, *arguments: str) -> str | None:
    command = ["git", *_START_NOTHING, "--no-optional-locks", "-C", str(directory), *arguments]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
