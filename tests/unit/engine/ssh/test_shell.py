"""Reaching a host, without one."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

from drumline.engine.ssh.shell import connect


def test_who_is_given_up_at_once_leaves_nothing_unbegun(tmp_path: Path) -> None:
    """What was made and never awaited would be said in the supervisor's log; here it fails the test."""
    config = tmp_path / "config"
    config.touch()

    def given_up(loop: asyncio.AbstractEventLoop, work: Any, /, **how: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **how)
        task.cancel()  # as the supervisor may when it leaves, before any of it was done
        return task

    async def give_up() -> None:
        reached = asyncio.ensure_future(connect("127.0.0.1", port=1, config=str(config)))
        asyncio.get_running_loop().set_task_factory(given_up)
        await asyncio.wait({reached})
        asyncio.get_running_loop().set_task_factory(None)
        assert reached.cancelled() or reached.exception()

    asyncio.run(give_up())
    gc.collect()
