"""Waiting for descriptors and for children, beside everything else that the loop does."""

from __future__ import annotations

import asyncio
import os


async def wait_readable(descriptor: int) -> None:
    """Return when something can be read there, or its other end is closed."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


async def wait_ended(pid: int) -> None:
    """Return when this child has ended; at once if it was waited for before."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await wait_readable(process)
    finally:
        os.close(process)
