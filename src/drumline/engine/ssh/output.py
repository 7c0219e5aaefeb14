"""The output of a run on hosts: on the chief's host while it writes, and here once it is fetched."""

from __future__ import annotations

import asyncio
import os
import posixpath
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from drumline.engine.local.output import Folder
from drumline.engine.output import Volume, Written
from drumline.engine.project.carry import ask, lay_out
from drumline.engine.project.copy import copy, refuse_link
from drumline.engine.project.fetch import fetch
from drumline.engine.project.snapshot import Snapshot
from drumline.engine.project.tree import Entry, Tree, left_out_warning, walk
from drumline.engine.ssh.luggage import FOLDER, read_origin
from drumline.engine.ssh.refusal import AwayError
from drumline.engine.ssh.shell import CONFIG_VARIABLE, Shell, connect, last_words
from drumline.errors import DrumlineError, EngineError, InputError, NotFoundError
from drumline.plan.hosts import Hosts
from drumline.run.origin import Origin

T = TypeVar("T")

_TRIES = 4  # for what changes all the time; the last time it is taken as it is, as `cp` would

_PUT = """
target=$1
[ ! -d "$target" ] || target=$target/$3
mkdir -p "$(dirname "$target")" || exit
if [ -d "$2/$3" ] && [ -d "$target" ]; then cp -R "$2/$3/." "$target/"; else mv -f "$2/$3" "$target"; fi
code=$?
rm -rf "$2" "$2".*
exit $code
"""


class HostsOutput:
    """What a run has written on its hosts."""

    def __init__(self, written: Written) -> None:
        self._plan = written.plan
        self._run = written.plan.run
        self._here = Folder(written, trusted=False)
        self._folder = written.folder
        self._origin = read_origin(written.run_dir)

    def visit(self, argv: Sequence[str]) -> int:
        """Run a command in the chief's output, by the user's own `ssh`; once that is fetched, in the folder here."""
        origin = self._there
        if origin.is_whole:
            return self._here.visit(argv)
        terminal = not argv and sys.stdin.isatty() and sys.stdout.isatty()
        line = f'cd {shlex.quote(origin.output_dir)} && export OUTPUT_DIR="$PWD" && '
        line += f"exec {shlex.join(argv)}" if argv else 'exec "${SHELL:-sh}"'
        program = shutil.which("ssh")
        if program is None:
            raise EngineError("there is no `ssh` here", hint=f"`drumline cp {self._run}: .` copies the output")
        config = self._hosts.config or os.environ.get(CONFIG_VARIABLE)
        words = [program, *(["-F", config] if config else []), "-t" if terminal else "-T", origin.host, line]
        if terminal:
            sys.stderr.write(f"drumline: this is {origin.output_dir} on {origin.host}; leave with `exit`\n")
            sys.stderr.flush()
        return subprocess.run(words, check=False).returncode

    def fetch(self, path: str, into: Path) -> Sequence[str]:
        """Copy from the chief's host; what is here already, and of a host that does not answer, from here."""
        origin = self._there
        if origin.is_whole and not posixpath.isabs(path):
            return self._here.fetch(path, into)

        async def take(shell: Shell) -> Sequence[str]:
            with tempfile.TemporaryDirectory(prefix="drumline-cp-") as scratch:
                found = posixpath.normpath(posixpath.join(origin.output_dir, path))
                folder, name = posixpath.split(found)
                for number in range(_TRIES):
                    taken = await fetch(
                        shell,
                        folder,
                        Path(scratch),
                        path=name,
                        python=self._hosts.python,
                        settled=True,
                        anyhow=number == _TRIES - 1,
                    )
                    if taken.is_whole:
                        break
                if name in taken.left_out:
                    raise refuse_link(path)
                copy(Path(scratch, name), into, trusted=False)
                return [left_out_warning(taken.left_out)] if taken.left_out else []

        try:
            return self._ask(origin.host, take)
        except NotFoundError as error:
            raise NotFoundError(error.message, hint=f"`drumline inspect {self._run} ls` lists what it has") from None
        except AwayError as error:
            if origin.is_shared or posixpath.isabs(path):
                raise
            return [f"{error.message}; this is what was fetched before", *self._here.fetch(path, into)]

    def put(self, source: Path, path: str) -> None:
        """Copy to the chief's host, and to the folder here, which is laid out where the next chief is."""
        if not os.path.lexists(source):
            raise InputError(f"there is no {source}")
        origin = self._there
        where = posixpath.normpath(posixpath.join(origin.output_dir, path))
        source = Path(os.path.abspath(source))  # noqa: PTH100

        async def give(shell: Shell) -> None:
            scratch = f"{origin.output_dir}.put"
            snapshot = await asyncio.to_thread(lambda: Snapshot(source.parent, _tree(source)))
            await lay_out(shell, snapshot, scratch, python=self._hosts.python)
            answer = await shell.run(["sh", "-c", _PUT, "sh", where, scratch, source.name])
            if answer.code:
                raise EngineError(f"cannot write {where} on {origin.host}: {last_words(answer.err)}")

        self._ask(origin.host, give)
        if not origin.is_shared and not posixpath.isabs(path):
            copy(source, self._folder / path, trusted=True)

    def volumes(self) -> Sequence[Volume]:
        """None that anybody is asked about: the folders of a run on its hosts go with it."""
        return ()

    def remove(self, names: Sequence[str]) -> None:
        """Remove the run's folder on these hosts; raise EngineError with all that could not be."""

        async def away(name: str) -> str:
            try:
                shell = await connect(name, config=self._hosts.config)
                try:
                    await ask(shell, self._hosts.python, "remove", {"folders": [self._run_folder]})
                finally:
                    await shell.close()
            except DrumlineError as error:
                return f"{self._run_folder} stays on {name}: {error.message}"
            return ""

        async def all_away() -> list[str]:
            return await asyncio.gather(*map(away, names))

        if left := [each for each in asyncio.run(all_away()) if each]:
            raise EngineError("\n".join(left))

    def _ask(self, host: str, question: Callable[[Shell], Coroutine[Any, Any, T]]) -> T:
        async def ask_there() -> T:
            shell = await connect(host, config=self._hosts.config)
            try:
                return await question(shell)
            finally:
                await shell.close()

        return asyncio.run(ask_there())

    @property
    def _there(self) -> Origin:
        if self._origin is None:
            raise NotFoundError(f"run {self._run} has written nothing so far")
        return self._origin

    @property
    def _run_folder(self) -> str:
        return f"{self._hosts.folder or FOLDER}/runs/{self._hosts.unique}"

    @property
    def _hosts(self) -> Hosts:
        if self._plan.hosts is None:
            raise AssertionError("a run on hosts has hosts")
        return self._plan.hosts


def _tree(source: Path) -> Tree:
    """A file or a folder, seen from the folder in which it lies."""
    name = source.name
    if source.is_symlink():
        return Tree((Entry(name, "link", target=str(source.readlink())),), ())
    if not source.is_dir():
        known = source.stat()
        return Tree((Entry(name, "file", known.st_size, bool(known.st_mode & 0o100)),), ())
    inner = walk(source, rules=False).entries
    return Tree((Entry(name, "folder"), *(each.replace(path=f"{name}/{each.path}") for each in inner)), ())


def open_output(written: Written) -> HostsOutput:
    """The output of a run."""
    return HostsOutput(written)
