"""A host that is a folder of this machine: commands run as over ssh, with a home of their own."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from drumline.errors import EngineError


class Answer(NamedTuple):
    """What a command said."""

    code: int
    out: bytes
    err: str


class Host:
    """Runs commands; whoever tests may meddle with what is given to them."""

    def __init__(self, home: Path, *, host: str = "gpu1", greeting: bytes = b"") -> None:
        home.mkdir(exist_ok=True)
        self.host = host
        self.home = home
        self.given: list[bytes] = []
        self.meddle: Callable[[bytes], bytes] = lambda given: given
        self.before: list[str] = []  # what runs the commands
        self.cut_after: int | None = None  # calls
        self._greeting = greeting

    async def run(
        self, argv: Sequence[str], given: bytes = b"", *, seconds: float = 0.0, most_bytes: int = 0
    ) -> Answer:
        """Run it; a connection that is cut tells nobody how it ended."""
        del seconds, most_bytes
        self.given.append(given)
        cut = self.cut_after is not None and len(self.given) > self.cut_after
        given = given[: -len(given) // 3] if cut else self.meddle(given)
        process = await asyncio.create_subprocess_exec(
            *self.before,
            *("sh", "-c", shlex.join(argv)),
            cwd=self.home,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await process.communicate(given)
        except asyncio.CancelledError:
            process.kill()
            await process.communicate()
            raise
        if cut:
            raise EngineError(f"the connection to {self.host} broke")
        return Answer(process.returncode or 0, self._greeting + out, err.decode())


def listing(root: Path) -> dict[str, object]:
    """All that is in a folder, by name."""
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
