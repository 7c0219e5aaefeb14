"""Background tasks are open to new work until they are closed together."""

from __future__ import annotations

import asyncio

from drumline.engine.tasks import Tasks


def test_tasks_are_open_until_they_are_closed() -> None:
    async def close() -> tuple[list[bool], bool]:
        tasks = Tasks(asyncio.get_running_loop())
        found = [tasks.is_open]
        waiting = tasks.begin(asyncio.sleep(60))
        await tasks.close()
        return [*found, tasks.is_open], waiting.cancelled()

    assert asyncio.run(close()) == ([True, False], True)
