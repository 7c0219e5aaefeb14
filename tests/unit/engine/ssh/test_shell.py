"""Connecting to a host, without a real host."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

from drumline.engine.ssh.shell import connect


def test_a_connection_that_is_cancelled_at_once_leaves_no_coroutine_that_was_never_awaited(tmp_path: Path) -> None:
    """Python warns of a coroutine that was never awaited, and the warning fails the test."""
    config = tmp_path / "config"
    config.touch()

    def cancelled_task(loop: asyncio.AbstractEventLoop, work: Any, /, **how: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **how)
        task.cancel()  # as a supervisor may do that exits before the task has started
        return task

    async def connect_cancelled() -> None:
        reached = asyncio.ensure_future(connect("127.0.0.1", port=1, config=str(config)))
        asyncio.get_running_loop().set_task_factory(cancelled_task)
        await asyncio.wait({reached})
        asyncio.get_running_loop().set_task_factory(None)
        assert reached.cancelled() or reached.exception()

    asyncio.run(connect_cancelled())
    gc.collect()
