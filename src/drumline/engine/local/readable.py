"""Wait for descriptors and for processes without blocking the event loop."""

from __future__ import annotations

import asyncio
import os


async def wait_readable(descriptor: int) -> None:
    """Return when a descriptor is readable or its other end is closed."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


async def wait_ended(pid: int) -> None:
    """Return when this process has ended; at once if it was reaped before."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await wait_readable(process)
    finally:
        os.close(process)
