"""Find the arguments, variables and folder of the Python process that a shell command starts.

This is done only for a command that does nothing else. The command is not interpreted here: after a check that it
consists of parts without side effects, the shell runs it with another program in front of Python, and the arguments and
variables of that program are read.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from drumline.engine.local.readable import wait_ended, wait_readable
from drumline.engine.local.warm.command import NotWarm, find_program
from drumline.plan.command import IN_ORDER
from drumline.record import Record
from drumline.runtime import TRACE_DIR

# Variables that a replica gets when its keeper starts: a shell command that uses one starts cold.
GIVEN_LATER = (TRACE_DIR,)

_SHELLS = ("sh", "bash", "dash")
_KNOWN = ("bash", "dash")  # the files that `sh` may be
_STAYS_PARENT = "dash"  # its behaviour as a parent is known: `runtime/warm_fork.py` does the same
# Read when a shell starts; bash also reads ~/.bashrc if ssh seems to have started it.
_START_FILES = ("BASH_ENV", "ENV")
_SSH = ("SSH_CLIENT", "SSH2_CLIENT")

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_PARAMETER = rf"\$(?:{_NAME}|[0-9@*]|\{{{_NAME}(?::?-[A-Za-z0-9_./:=,@%+-]*)?\}})"
_TOKEN = re.compile(
    rf"""
    (?P<blank> [ \t]+ (?: \\\n [ \t]* )* | (?: \\\n )+ [ \t]+ )
    | (?P<separator> && | ; | \n )
    | (?P<word> (?! \# ) (?:
        [^\x00-\x20\x7f'"\\$`|&;<>()]
        | \\ [^\n]
        | {_PARAMETER}
        | ' [^']* '
        | " (?: [^"\\$`] | \\ [\s\S] | {_PARAMETER} )* "
      )+ )
    """,
    re.VERBOSE,
)
_USED = re.compile(rf"\$\{{?({_NAME})")
_ASSIGNMENT = re.compile(rf"({_NAME})=")
_EXPORTED = re.compile(rf"({_NAME})(?:=|\Z)")
_PYTHON = re.compile(r"""["']?[A-Za-z0-9_./${}~+-]*python[0-9.]*["']?""")
# Variables that change with every shell.
_CHANGING = re.compile(r"RANDOM|SRANDOM|SECONDS|EPOCH\w+|BASH\w*|LINENO|PPID")
_OPTIONS = re.compile(r"-[ceuo]+")
_OPTION_NAMES = ("errexit", "nounset", "pipefail")

_PROGRAM = "/bin/./sh"  # a spelling that no user's command has
_PROGRAM_WORDS = (_PROGRAM, "-s", "--")
_PRINT_PID = b"echo $$\n"
_ANSWER_SECONDS = 5.0


class Executed(Record):
    """The process that a command becomes in the end: its arguments, variables and folder.

    `parent` has the arguments of the shell that stays its parent; empty if there is no such shell.
    `assigned` has the variables that the shell command sets, in order, each with those that its value may come from.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str
    parent: tuple[str, ...] = ()
    assigned: tuple[tuple[str, frozenset[str]], ...] = ()


_Command = list[tuple[str, int]]  # words as written, with their positions


class _ShellCommand(Record):
    """Where Python begins in a shell command, and the variables that are assigned before it."""

    command_at: int
    assigned: tuple[tuple[str, frozenset[str]], ...]


async def resolve_shell(argv: Sequence[str], env: Mapping[str, str], workdir: str) -> Executed:
    """Return the process that a command becomes in the end; raise NotWarm for a shell that does anything else."""
    name = os.path.basename(argv[0])  # noqa: PTH119
    if name not in _SHELLS:
        return Executed(tuple(argv), env, workdir)
    file = find_program(argv[0], env, workdir)
    kind = os.path.basename(os.path.realpath(file))  # noqa: PTH119
    if kind not in _KNOWN:
        raise NotWarm(f"{argv[0]} is {kind}, which is not a known shell")
    _check_environment(env, kind)
    at = _find_line(argv, name)
    before: Sequence[str] = ()
    if argv[at] == IN_ORDER and len(argv) > at + 2:
        before, at = argv[at + 2 : -1], len(argv) - 1
    prepared = [each for line in before for each in _read_preparation(_split(line, name), name)]
    line = _read_line(argv[at], name)
    asked = f"{argv[at][: line.command_at]}{' '.join(_PROGRAM_WORDS)} {argv[at][line.command_at :]}"
    executed, stays_parent = await _ask(file, [*argv[:at], asked, *argv[at + 1 :]], env, workdir)
    if stays_parent and kind != _STAYS_PARENT:
        raise NotWarm(f"{name} stays its parent")
    _check_path(executed.env.get("PATH", ""), kind)
    return executed.replace(
        env=_with_path_of_command(executed),
        parent=tuple(argv) if stays_parent else (),
        assigned=(*prepared, *line.assigned),
    )


def _check_environment(env: Mapping[str, str], kind: str) -> None:
    for variable in env:
        if variable in _START_FILES or variable.startswith("BASH_FUNC_"):
            raise NotWarm(f"{variable} is set")
    if kind == "bash" and any(variable in env for variable in _SSH) and env.get("SHLVL", "0") == "0":
        raise NotWarm("bash may read ~/.bashrc")


def _check_path(path: str, kind: str) -> None:
    """Raise NotWarm if a shell may find another Python than `find_program`, or if bash spells its path differently."""
    if not path:
        raise NotWarm("PATH is not set")
    if kind == "bash" and any(not os.path.isabs(folder) for folder in path.split(os.pathsep)):  # noqa: PTH117
        raise NotWarm("PATH has a relative folder")


def _find_line(argv: Sequence[str], name: str) -> int:
    """Return the index of the shell command in argv; before it only `-c` and known options are allowed."""
    at, letters = 1, ""
    while at < len(argv) and _OPTIONS.fullmatch(argv[at]):
        letters += argv[at]
        named = argv[at].count("o")
        if any(option not in _OPTION_NAMES for option in argv[at + 1 : at + 1 + named]):
            break
        at += 1 + named
    if "c" not in letters or at >= len(argv) or argv[at].startswith(("-", "+")):
        raise NotWarm(f"{name} {argv[at] if at < len(argv) else 'without a command'}")
    return at


def _read_line(line: str, name: str) -> _ShellCommand:
    """Return where Python begins in a shell command, and the assigned variables; raise NotWarm if it does more."""
    *before, last = _split(line, name) or [[]]
    assigned = _read_preparation(before, name)
    while last and _ASSIGNMENT.match(last[0][0]):
        assigned.append(_sources(last.pop(0)[0]))
    if len(last) > 1 and last[0][0] == "exec":
        last.pop(0)
    if not last or not _PYTHON.fullmatch(last[0][0]):
        raise NotWarm(f"its command for {name} runs {last[0][0] if last else 'nothing'}, not Python")
    return _ShellCommand(last[0][1], tuple(assigned))


def _read_preparation(commands: Sequence[_Command], name: str) -> list[tuple[str, frozenset[str]]]:
    """Return the variables that these commands assign, with their sources; raise NotWarm if one does anything else."""
    assigned: list[tuple[str, frozenset[str]]] = []
    for command in commands:
        words = [text for text, _ in command]
        if not _is_preparation(words):
            raise NotWarm(f"its command for {name} has another command: {words[0]}")
        if words[0] == "cd":
            assigned += [("OLDPWD", frozenset({"PWD"})), ("PWD", frozenset(_USED.findall(words[1])) | {"PWD"})]
        assigned += [_sources(word) for word in words if _ASSIGNMENT.match(word)]
    return assigned


def _split(line: str, name: str) -> list[_Command]:
    """Split a shell command into simple commands: their words as written, with their positions."""
    commands: list[_Command] = [[]]
    at = 0
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None:
            raise NotWarm(f"its command for {name} has {line[at : at + 2].strip()!r}")
        if token["separator"]:
            commands.append([])
        elif token["word"]:
            commands[-1].append((token["word"], at))
            for variable in _USED.findall(token["word"]):
                if variable in GIVEN_LATER or _CHANGING.fullmatch(variable):
                    raise NotWarm(f"its command for {name} has ${variable}")
        at = token.end()
    return [words for words in commands if words]


def _is_preparation(words: Sequence[str]) -> bool:
    """Return whether a command only changes the folder or the variables of its shell."""
    if words[0] == "cd":
        return len(words) == 2 and not words[1].startswith("-")
    if words[0] == "export":
        return len(words) > 1 and all(_EXPORTED.match(word) for word in words[1:])
    if words[0] == "set":
        return all(re.fullmatch("-[euo]+", word) or word in _OPTION_NAMES for word in words[1:])
    return all(_ASSIGNMENT.match(word) for word in words)


def _sources(assignment: str) -> tuple[str, frozenset[str]]:
    name, _, value = assignment.partition("=")
    return name, frozenset(_USED.findall(value))


async def _ask(file: str, argv: Sequence[str], env: Mapping[str, str], workdir: str) -> tuple[Executed, bool]:
    """Run a shell command with another program in front of Python; return the arguments and variables of Python.

    Also return whether the shell stays the parent of that program.
    """
    try:
        process = subprocess.Popen(
            argv,
            bufsize=0,
            executable=file,
            cwd=workdir,
            env={**env, **dict.fromkeys(GIVEN_LATER, "")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise NotWarm(f"{argv[0]} cannot be run: {error}") from None
    with process:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                output = await _first_line(process)
                if not output.strip().isdigit():
                    first = output.decode(errors="replace").partition("\n")[0]
                    raise NotWarm(f"{argv[0]} prints {first!r}" if first else f"{argv[0]} starts nothing")
                executed = _read_process(int(output))
                assert process.stdin
                process.stdin.close()  # the program ends without input
                await wait_ended(process.pid)
        except (OSError, TimeoutError):
            raise NotWarm(f"{argv[0]} does not answer") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return executed, int(output) != process.pid


async def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    """Return the first line of a shell's output: its own, or the pid that the program in front of Python prints."""
    assert process.stdin
    assert process.stdout
    with suppress(BrokenPipeError):
        process.stdin.write(_PRINT_PID)
    output = b""
    while not output.endswith(b"\n"):
        await wait_readable(process.stdout.fileno())
        data = process.stdout.read(65536)
        if not data:
            break
        output += data
    return output


def _read_process(pid: int) -> Executed:
    """Return the arguments, variables and folder of a process, without the words of the program in front of Python."""
    words = _read_strings(pid, "cmdline")
    if words[: len(_PROGRAM_WORDS)] != [*_PROGRAM_WORDS] or len(words) == len(_PROGRAM_WORDS):
        raise NotWarm("its shell runs something else")
    env = dict(each.split("=", 1) for each in _read_strings(pid, "environ") if "=" in each)
    workdir = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115
    return Executed(tuple(words[len(_PROGRAM_WORDS) :]), env, workdir)


def _read_strings(pid: int, name: str) -> list[str]:
    with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123
        return [os.fsdecode(each) for each in file.read().split(b"\0")[:-1]]


def _with_path_of_command(executed: Executed) -> Mapping[str, str]:
    """Return the variables of a command, with `_` as bash sets it: the path of the executed file."""
    name, env = executed.argv[0], executed.env
    if env.get("_") != _PROGRAM:
        return env
    return {**env, "_": name if "/" in name else find_program(name, env, executed.workdir)}
