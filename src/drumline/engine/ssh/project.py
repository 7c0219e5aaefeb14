"""The project on its way to hosts (stand-in)."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from drumline.engine.project.own import own_folders
from drumline.engine.project.tree import walk
from drumline.engine.protocol import Site
from drumline.engine.ssh.link import Link
from drumline.engine.ssh.place import hosts_of
from drumline.errors import EngineError
from drumline.plan.types import Plan


def carrier(plan: Plan, site: Site) -> Callable[[Link], Coroutine[Any, Any, None]]:
    """What carries the project to one host."""
    unique = hosts_of(plan).unique

    def pack() -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for entry in walk(Path(site.directory), without=own_folders(plan, site)).entries:
                archive.add(site.directory / entry.path, entry.path, recursive=False)
        return buffer.getvalue()

    async def carry(link: Link) -> None:
        data = await asyncio.to_thread(pack)
        assert link.shell
        assert link.facts
        folder = f"{link.facts.base}/runs/{unique}/project"
        answer = await link.shell.run(["tar", "-xf", "-", "-C", folder], data)
        if answer.code:
            raise EngineError(answer.err)

    return carry
