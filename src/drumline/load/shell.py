"""Check the syntax of the shell commands of a spec."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

from drumline.plan.command import commands
from drumline.plan.parameters import unfinished
from drumline.plan.rules import SpecProblem, runs
from drumline.spec.types import Spec

_SYNTAX = re.compile(r"[();&|]|\b(?:if|then|elif|else|fi|for|while|until|do|done|case|esac)\b")
_ERROR = re.compile(r"[Ss]yntax error:? *(.+)")
_READ_SECONDS = 10.0


def find_syntax_errors(spec: Spec) -> Iterator[SpecProblem]:
    """Yield syntax errors of commands as `sh -n` reports them; nothing is executed.

    An unexpected end, such as an `if` without `fi`, is a problem. Other errors are warnings, since the shell of the
    replicas may have another syntax than `sh` on this machine.
    """
    for path, run in runs(spec):
        for index, command in enumerate(commands(run)):
            if not _SYNTAX.search(command) or any(unfinished(command)):
                continue  # no shell syntax, or a placeholder that is not closed, which another rule reports
            if message := _syntax_error(command):
                place = path if isinstance(run.shell, str) else (*path, index)
                yield SpecProblem(place, f"`sh` cannot read this: {message}", fatal="end of file" in message)


def _syntax_error(command: str) -> str:
    """Return the shell's syntax error for a command; empty if there is none, or the shell cannot be run."""
    try:
        done = subprocess.run(
            ["sh", "-n", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            timeout=_READ_SECONDS,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    found = _ERROR.search(done.stderr.decode(errors="replace")) if done.returncode > 0 else None
    return found[1].strip() if found else ""
