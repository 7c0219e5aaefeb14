"""A host that is a folder of this machine: agents run as over ssh, with that folder as their home."""

from __future__ import annotations

import asyncio
import atexit
import io
import os
import shlex
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from drumline.engine.agent.bootstrap import Setup, start_agent
from drumline.engine.agent.client import Agent
from drumline.engine.agent.errors import UnreachableError
from drumline.engine.agent.package import package_data, package_name

T = TypeVar("T")
PACKAGES = "~/.cache/drumline/hosts"
# The `python3` that runs the tests comes first: pyenv's is a shell script, which starts eight times more slowly.
_PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@cache
def _packages() -> Path:
    """Return a folder with the agent's package, which all hosts of this process share."""
    folder = Path(tempfile.mkdtemp(prefix="drumline-test-packages-"))
    zipfile.ZipFile(io.BytesIO(package_data())).extractall(folder / package_name())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class Channel:
    """A command and its streams; a test may change the data that is written to the command."""

    def __init__(self, host: Host, process: asyncio.subprocess.Process, greeting: bytes) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._host = host
        self._process = process
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._greeting = greeting

    async def write(self, data: bytes) -> None:
        if data.startswith(b"{"):
            self._host.requests.append(data)
            cut = self._host.cut_after is not None and len(self._host.requests) > self._host.cut_after
            data = data[: -len(data) // 3] if cut else self._host.change_request(data)
            self._stdin.write(data)
            await self._stdin.drain()
            if cut:
                self._stdin.close()
                await self._process.wait()
                raise UnreachableError(f"the connection to {self._host.host} broke")
            return
        self._stdin.write(data)
        await self._stdin.drain()

    async def readline(self, most_bytes: int) -> bytes:
        del most_bytes
        if self._greeting:
            greeting, self._greeting = self._greeting, b""
            return greeting
        return await self._stdout.readline()

    async def readexactly(self, size: int) -> bytes:
        return await self._stdout.readexactly(size)

    async def stderr_tail(self) -> str:
        return (await self._stderr.read()).decode()

    def close(self) -> None:
        self._stdin.close()

    async def wait(self) -> None:
        self._stdin.close()
        await self._process.wait()


class Host:
    """A host that starts commands; a test may change the data that is written to them."""

    def __init__(self, home: Path, *, host: str = "gpu1", greeting: bytes = b"") -> None:
        packages = home / PACKAGES.removeprefix("~/")
        packages.parent.mkdir(parents=True)
        packages.symlink_to(_packages())
        self.host = host
        self.home = home
        self.requests: list[bytes] = []  # frames that were written
        self.change_request: Callable[[bytes], bytes] = lambda request: request
        self.prefix: list[str] = []  # words in front of every command
        self.cut_after: int | None = None  # the number of requests after which the connection breaks
        self._greeting = greeting
        self._channels: list[Channel] = []

    async def open(self, argv: Sequence[str], *, counts: bool = False) -> Channel:
        del counts
        process = await asyncio.create_subprocess_exec(
            *self.prefix,
            *("sh", "-c", shlex.join(argv)),
            cwd=self.home,
            env={"HOME": str(self.home), "PATH": _PATH, "LANG": "C"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=64 << 20,
        )
        channel = Channel(self, process, self._greeting)
        self._channels.append(channel)
        return channel

    async def closed(self) -> None:
        """Return when every command has ended."""
        while self._channels:
            await self._channels.pop().wait()


async def start(host: Host, python: str = "python3") -> Agent:
    """Start an agent on a host."""
    return await start_agent(host, Setup(python, PACKAGES, "name another", "make room there"), keep=True)


def ask(host: Host, request: Callable[[Agent], Awaitable[T]], python: str = "python3") -> T:
    """Start an agent on a host, send it requests, and end it."""

    async def run() -> T:
        try:
            async with await start(host, python) as agent:
                return await request(agent)
        finally:
            await host.closed()

    return asyncio.run(run())


class ScriptedAgent:
    """An agent that answers every request with the same bytes."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._unread = bytearray()

    def agent(self) -> Agent:
        """Return the client of this agent."""
        return Agent(self, "gpu1", "make room there")

    async def write(self, data: bytes) -> None:
        self._unread += self._answer(data)

    async def readline(self, most_bytes: int) -> bytes:
        assert most_bytes <= 64 << 20
        end = self._unread.find(b"\n") + 1 or len(self._unread)
        return self._take(end)

    async def readexactly(self, size: int) -> bytes:
        if len(self._unread) < size:
            raise UnreachableError("the connection to gpu1 broke")
        return self._take(size)

    async def stderr_tail(self) -> str:
        return ""

    def close(self) -> None:
        pass

    def _take(self, size: int) -> bytes:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data


def listing(root: Path) -> dict[str, object]:
    """Return all content of a folder, by path."""
    found: dict[str, object] = {}
    for at, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(at, name)
            inner = str(path.relative_to(root))
            if path.is_symlink():
                found[inner] = f"-> {path.readlink()}"
            elif path.is_dir():
                found[inner] = "folder"
            else:
                found[inner] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found
