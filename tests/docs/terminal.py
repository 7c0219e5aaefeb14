"""A terminal that runs a page's commands one after another, and compares their output with the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from docs.pages import TABLE, Block, read_table
from drumline.runtime.lock import is_locked
from drumline.store.folder import RunFolder
from drumline.supervise.requests import read_state
from scaffold.environments import find_python
from scaffold.waiting import wait_until

COMMAND_SECONDS = 1500  # a long limit: each wait ends as soon as it can
SOURCES = Path(__file__).parents[2] / "src"

# Text that differs between runs, and the placeholder for it while texts are compared.
_CHANGING = (
    (re.compile(r"(\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\dZ?"), "TIME"),
    (re.compile(r"(127\.0\.0\.1:|MASTER_PORT=)\d+"), r"\1PORT"),
    (re.compile(r"process \d+"), "process PID"),
    (re.compile(r"\d+\.\d{4,}"), "FIGURE"),  # losses differ a little from machine to machine
    (re.compile(r"(?<![\w.])(\d+(\.\d+)?(ms|s|m|h|d))+(?![\w.])"), "DURATION"),
    (re.compile(r"drumline \d+\.\d+\.\d+\S*"), "drumline VERSION"),
    (re.compile(r"_THREADS=\d+"), "_THREADS=CORES"),
    (re.compile(r"^python +/\S+: .*$", re.MULTILINE), "python PYTHON"),
    (re.compile(r"Syncing project \([^)]*\)"), "Syncing project (SIZE)"),
    (re.compile(r"(RUNNING +)\d+ +\d+ +[\d.]+ / ([\d.]+)"), r"\1CPU MEM USED / \2"),
    (re.compile(r"(CPU %|MEM GiB)( +[\d.]+){3}( +[▁▂▃▄▅▆▇█ ]+)?$", re.MULTILINE), r"\1 FIGURES"),
)
# The id at the beginning of a line of `logs` or `events`.
_STREAMED = re.compile(r"(\[TIME\] )?(?P<id>\d+(\.[a-z]+\.\d+)?)(?(1) | *\| )")
_ANYTHING = "..."


class Command(NamedTuple):
    """A command, its expected output, and whether the next command prints its exit code."""

    text: str
    output: str
    may_fail: bool


def read_commands(block: str) -> Iterator[Command]:
    """Yield the commands of a console block; lines that begin with `> ` continue the command before."""
    typed: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            typed.append((line[2:], []))
        elif line.startswith("> ") and not typed[-1][1]:
            typed[-1] = (f"{typed[-1][0]}\n{line[2:]}", [])
        else:
            typed[-1][1].append(line)
    for (text, output), following in zip(typed, [*(text for text, _ in typed[1:]), ""], strict=True):
        yield Command(text, "".join(f"{line}\n" for line in output), following == "echo $?")


def read_row(cells: Sequence[str]) -> list[str]:
    """Return the commands of a table's row: everything marked as code in its last cell, in order."""
    return re.findall(r"`([^`]+)`", cells[-1])


class Terminal:
    """A shell session that keeps folder, variables and the last exit code between commands."""

    def __init__(self, folder: Path, framework: str | None = None, env: Mapping[str, str] = {}) -> None:
        self._home = folder / "home" / "you"
        self._home.mkdir(parents=True)
        programs = Path(sys.executable).parent if framework is None else _install(framework, folder / "bin")
        self._state = folder / "state"
        self._state.write_text(f"cd {shlex.quote(str(self._home))}\n")
        self._code = 0
        self._env = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self._home),
            "DRUMLINE_HOME": str(self._home / ".local" / "share" / "drumline"),
            "DRUMLINE_GPUS": "",
            "DRUMLINE_TENSORBOARD": str(find_python("tensorboard")),
            "LANG": "C.UTF-8",
            **env,
        }

    def write(self, name: str, text: str) -> None:
        """Write a file in the current folder."""
        self.type(f"cat > {shlex.quote(name)}", given=text)

    def type(self, command: str, *, given: str = "") -> tuple[str, int]:
        """Run a command; return what it printed, with the home folder as `/home/you`, and its exit code."""
        wait_until(self._are_supervisors_done)
        state = shlex.quote(str(self._state))
        script = (
            f"set -o pipefail; . {state}; (exit {self._code})\n{command}\n"
            f'code=$?; {{ export -p; echo "cd $(printf %q "$PWD")"; }} > {state}; exit $code'
        )
        done = subprocess.run(
            ["bash", "-c", script],
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._env,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        self._code = done.returncode
        return done.stdout.replace(str(self._home), "/home/you"), done.returncode

    def _are_supervisors_done(self) -> bool:
        """Return whether the supervisors of ended runs have exited; they may run a moment longer."""
        left = (folder for folder in map(RunFolder, self._runs()) if is_locked(folder.lock_file))
        return not any(read_state(folder).phase.is_final for folder in left)

    def _runs(self) -> list[Path]:
        return sorted((self._home / ".local" / "share" / "drumline" / "runs").glob("*"))

    def close(self) -> None:
        """End every run that was started in this terminal."""
        runs = self._runs()
        if runs:
            self.type("drumline kill --force " + " ".join(run.name for run in runs))
            self.type("drumline warm stop")


def _install(framework: str, folder: Path) -> Path:
    """Write the commands of a drumline that is installed into the environment of a framework; return their folder."""
    folder.mkdir()
    python = find_python(framework)
    for name, words in {"python": "", "drumline": "-m drumline"}.items():
        (folder / name).write_text(f'#!/bin/sh\nPYTHONPATH={SOURCES} exec {python} {words} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def try_block(block: Block, terminal: Terminal) -> Iterator[str]:
    """Run the commands of a block; yield the differences from the shown output."""
    if "file" in block.marks:
        terminal.write(block.marks["file"], block.text)
    if "not run" in block.marks or "demo" in block.marks:  # the output of the demo has its own test
        return
    if block.language == "sh":
        printed, code = terminal.type(block.text)
        if code != 0:
            yield f"{block.place}: exit code {code}\n{printed}"
    elif block.language == "console":
        for command in read_commands(block.text):
            printed, code = terminal.type(command.text)
            if code != 0 and not command.may_fail:
                yield f"{block.place}: $ {command.text}: exit code {code}"
            if unlike := differences(command.output, printed):
                yield "\n  ".join((f"{block.place}: $ {command.text}", *unlike))
    elif block.language == TABLE:
        for text in (each for row in read_table(block.text) for each in read_row(row)):
            printed, code = terminal.type(text)
            if code != 0:
                yield f"{block.place}: $ {text}: exit code {code}\n{printed}"


def differences(shown: str, printed: str) -> list[str]:
    """Return the differences between a page and the output of a command; a line `...` stands for any lines.

    The lines of two replicas have no fixed order: the lines of each replica are compared separately.
    """
    wanted, had = _by_replica(_normalise(shown)), _by_replica(_normalise(printed))
    partial = len(had) > 1 and _ANYTHING in wanted[""]
    if partial:
        wanted = {name: _loosen(lines) for name, lines in wanted.items()}
    unlike = [name for name, lines in wanted.items() if not _is_like(lines, had.get(name, []))]
    unshown = [] if partial else [name for name in had if name not in wanted]
    return [
        line
        for name in (*unlike, *unshown)
        for line in (
            *(f"shown    {each}" for each in wanted.get(name, [])),
            *(f"printed  {each}" for each in had.get(name, [])),
        )
    ]


def _normalise(text: str) -> list[str]:
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    # The width of a column depends on its content.
    return [re.sub(r" {2,}", "  ", re.sub(r" +\|", " |", line)).rstrip() for line in text.splitlines()]


def _by_replica(lines: list[str]) -> dict[str, list[str]]:
    """Return the lines of each replica; lines without a replica have an empty name."""
    found: dict[str, list[str]] = {"": []}
    for line in lines:
        match = _STREAMED.match(line)
        found.setdefault(match["id"] if match else "", []).append(line)
    return found


def _loosen(lines: list[str]) -> list[str]:
    return [_ANYTHING, *(each for line in lines for each in (line, _ANYTHING))]


def _is_like(wanted: list[str], had: list[str]) -> bool:
    pattern = "".join("(?:.*\\n)*?" if line == _ANYTHING else f"{re.escape(line)}\\n" for line in wanted)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in had)) is not None
