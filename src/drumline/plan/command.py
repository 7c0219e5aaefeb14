"""Convert `run` of a spec to the arguments of a process, with a shell only if it is needed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from drumline.plan import parameters

if TYPE_CHECKING:  # this file is sent to other machines without the package `spec`
    from drumline.spec.types import Run

# Each command is parsed separately, so that an unclosed quote does not extend into the next command. All run in one
# shell, so that `cd`, `export` and `set -e` persist. `eval … || exit` would disable `set -e`.
IN_ORDER = 'for command do eval "$command"; case $? in 0) ;; *) exit ;; esac; done'

_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\]*\"")
_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^ \t'\"]++)++")  # of a simple command
_QUOTES = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_SIMPLE = re.compile(r"[A-Za-z0-9_@%+=:,./ \t-]*")
_OUTER_BLANKS = re.compile(r"\A[ \t\n]+|(?<![\\ \t\n])[ \t\n]+\Z")
# Built-in commands and keywords of shells.
_SHELL_WORDS = frozenset(
    """
    . : alias bg bind break builtin caller case cd chdir command continue coproc declare dirs disown do done echo
    elif else enable esac eval exec exit export false fc fg fi for function getopts hash help history if in jobs
    kill let local logout mapfile popd printf pushd pwd read readarray readonly return select set shift shopt source
    suspend test then time times trap true type typeset ulimit umask unalias unset until wait while
    """.split()  # noqa: SIM905
)


def commands(run: Run) -> tuple[str, ...]:
    """Return the shell commands of a `run`, in order; none if the `run` has arguments instead."""
    if run.shell is None:
        return ()
    return (run.shell,) if isinstance(run.shell, str) else run.shell


def make_argv(run: Run, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments of the process of a `run`, with the values of parameters."""
    if run.argv is not None:
        return tuple(parameters.fill(word, values) for word in run.argv)
    filled = tuple(_OUTER_BLANKS.sub("", parameters.fill_shell(command, values)) for command in commands(run))
    if len(filled) == 1:
        return _plain_words(filled[0]) or ("sh", "-c", filled[0])
    return ("sh", "-c", IN_ORDER, "sh", *filled)


def format_argv(argv: tuple[str, ...]) -> str:
    """Return arguments as a command line for display."""
    if argv[:3] == ("sh", "-c", IN_ORDER):
        return " && ".join(command if _QUOTED.sub("", command).isprintable() else repr(command) for command in argv[4:])
    if len(argv) == 3 and argv[:2] == ("sh", "-c"):
        return argv[2]
    return shlex.join(argv)


def mistaken_words(run: Run) -> str | None:
    """Return a warning if a list of commands looks like the arguments of one command."""
    several = commands(run) if not isinstance(run.shell, str) else ()
    if len(several) < 2:
        return None
    bare = re.fullmatch(r"(\S*/)?(python[0-9.]*|bash|sh|torchrun|mpirun)", several[0])
    if bare or any(command.startswith("-") for command in several):
        words = ", ".join(several)
        return (
            f"these would run as {len(several)} commands; for the words of one command write `run: {{argv: [{words}]}}`"
        )
    return None


def _plain_words(command: str) -> tuple[str, ...] | None:
    """Return the arguments of a command that needs no shell; None if it needs one."""
    if not _SIMPLE.fullmatch(_QUOTED.sub("", command)):
        return None
    words = tuple(_QUOTES.sub(r"\1\2", word) for word in _WORD.findall(command))
    return None if not words or not words[0] or "=" in words[0] or words[0] in _SHELL_WORDS else words


def texts(run: Run) -> Iterator[str]:
    """Yield all texts of a `run`."""
    yield from commands(run)
    yield from run.argv or ()
