"""The output of a run on hosts: on the chief's host while it writes, and on this machine once it is fetched."""

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

from drumline.engine.agent.answers import Done
from drumline.engine.agent.client import Agent
from drumline.engine.agent.errors import UnreachableError
from drumline.engine.agent.fetch import fetch
from drumline.engine.agent.send import FILES_SECONDS, send_folder
from drumline.engine.local.output import Folder
from drumline.engine.output import RunOutput
from drumline.engine.project.copy import copy, refuse_link
from drumline.engine.project.snapshot import Snapshot
from drumline.engine.project.tree import Entry, Tree, left_out_warning, walk_project
from drumline.engine.ssh.agents import open_agent, runs_folder
from drumline.engine.ssh.folders import read_origin
from drumline.engine.ssh.plan_options import Hosts, hosts_of
from drumline.engine.ssh.shell import CONFIG_VARIABLE, connect
from drumline.errors import DrumlineError, EngineError, InputError, NotFoundError
from drumline.run.origin import Origin

T = TypeVar("T")

_TRIES = 4  # for files that keep changing; the last try copies them as `cp` does, in whatever state they are


class HostsOutput:
    """The output of a run on its hosts."""

    def __init__(self, run_output: RunOutput) -> None:
        self._plan = run_output.plan
        self._run = run_output.plan.run
        self._fetched = Folder(run_output, trusted=False)
        self._folder = run_output.folder
        self._origin = read_origin(run_output.run_dir)

    def run_command(self, argv: Sequence[str]) -> int:
        """Run a command in the output folder and return its exit code: on the chief's host, by the user's own `ssh`.

        It runs on this machine once all output is fetched.
        """
        origin = self._known_origin
        if origin.is_whole:
            return self._fetched.run_command(argv)
        terminal = not argv and sys.stdin.isatty() and sys.stdout.isatty()
        line = f'cd {shlex.quote(origin.output_dir)} && export OUTPUT_DIR="$PWD" && '
        line += f"exec {shlex.join(argv)}" if argv else 'exec "${SHELL:-sh}"'
        program = shutil.which("ssh")
        if program is None:
            raise EngineError("there is no `ssh` here", hint=f"`drumline cp {self._run}: .` copies the output")
        config = self._hosts.config or os.environ.get(CONFIG_VARIABLE)
        command = [program, *(["-F", config] if config else []), "-t" if terminal else "-T", origin.host, line]
        if terminal:
            sys.stderr.write(f"drumline: this is {origin.output_dir} on {origin.host}; `exit` ends the shell\n")
            sys.stderr.flush()
        return subprocess.run(command, check=False).returncode

    def fetch(self, path: str, into: Path) -> Sequence[str]:
        """Copy a path from the chief's host; from this machine once all output is fetched.

        If the host does not answer, copy what was fetched before and return a warning.
        """
        origin = self._known_origin
        if origin.is_whole and not posixpath.isabs(path):
            return self._fetched.fetch(path, into)

        async def take(agent: Agent) -> Sequence[str]:
            with tempfile.TemporaryDirectory(prefix="drumline-cp-") as scratch:
                found = posixpath.normpath(posixpath.join(origin.output_dir, path))
                folder, name = posixpath.split(found)
                for number in range(_TRIES):
                    taken = await fetch(
                        agent,
                        folder,
                        Path(scratch),
                        path=name,
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
        except UnreachableError as error:
            if origin.is_shared or posixpath.isabs(path):
                raise
            return [f"{error.message}; this is what was fetched before", *self._fetched.fetch(path, into)]

    def put(self, source: Path, path: str) -> None:
        """Copy a file or folder to the chief's host, and to the local folder, which is sent to the next chief."""
        if not os.path.lexists(source):
            raise InputError(f"there is no {source}")
        origin = self._known_origin
        where = posixpath.normpath(posixpath.join(origin.output_dir, path))
        source = Path(os.path.abspath(source))  # noqa: PTH100

        async def give(agent: Agent) -> None:
            scratch = f"{origin.output_dir}.put"
            snapshot = await asyncio.to_thread(lambda: Snapshot(source.parent, _tree(source)))
            await send_folder(agent, snapshot, scratch)
            message = {"do": "put", "scratch": scratch, "name": source.name, "target": where}
            await agent.ask(message, Done, seconds=FILES_SECONDS)

        self._ask(origin.host, give)
        if not origin.is_shared and not posixpath.isabs(path):
            copy(source, self._folder / path, trusted=True)

    def remove_files(self) -> None:
        """Remove the run's folder on all hosts; raise EngineError with all folders that could not be removed."""
        folder = f"{runs_folder(self._hosts)}/runs/{self._hosts.unique}"
        message = {"do": "remove", "paths": [folder]}

        async def remove_on(name: str) -> str:
            try:
                await self._ask_host(name, lambda agent: agent.ask(message, Done, seconds=FILES_SECONDS))
            except DrumlineError as error:
                return f"{folder} stays on {name}: {error.message}"
            return ""

        async def remove_on_all() -> list[str]:
            return await asyncio.gather(*map(remove_on, self._hosts.names))

        if left := [each for each in asyncio.run(remove_on_all()) if each]:
            raise EngineError("\n".join(left))

    def _ask(self, host: str, request: Callable[[Agent], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run(self._ask_host(host, request))

    async def _ask_host(self, host: str, request: Callable[[Agent], Coroutine[Any, Any, T]]) -> T:
        shell = await connect(host, config=self._hosts.config)
        try:
            async with await open_agent(shell, self._hosts) as agent:
                return await request(agent)
        finally:
            await shell.close()

    @property
    def _known_origin(self) -> Origin:
        if self._origin is None:
            raise NotFoundError(f"run {self._run} has written nothing so far")
        return self._origin

    @property
    def _hosts(self) -> Hosts:
        return hosts_of(self._plan)


def _tree(source: Path) -> Tree:
    """Return a file or a folder as a tree that begins with its name."""
    name = source.name
    if source.is_symlink():
        return Tree((Entry(name, "link", target=str(source.readlink())),), ())
    if not source.is_dir():
        known = source.stat()
        return Tree((Entry(name, "file", known.st_size, bool(known.st_mode & 0o100)),), ())
    inner = walk_project(source, rules=False).entries
    return Tree((Entry(name, "folder"), *(each.replace(path=f"{name}/{each.path}") for each in inner)), ())


def open_output(run_output: RunOutput) -> HostsOutput:
    """Return access to the output of a run."""
    return HostsOutput(run_output)
