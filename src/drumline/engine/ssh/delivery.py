"""Send files to a host before something starts there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from drumline.engine.agent.errors import UnreachableError
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.placement_request import PLACE_SECONDS
from drumline.errors import DrumlineError

_PAUSE_SECONDS = 0.1


async def deliver_when_connected(
    connection: HostConnection, deliver: Callable[[], Awaitable[None]], is_wanted: Callable[[], bool]
) -> bool:
    """Call `deliver` once the host is connected, and again if the connection breaks meanwhile; then return True.

    Return False when `is_wanted` returns False first. Raise DrumlineError if the host refuses the files.
    """
    while is_wanted():
        if not await connection.wait_connected(PLACE_SECONDS):
            continue
        try:
            await deliver()
        except DrumlineError as error:
            if not (isinstance(error, UnreachableError) or not connection.is_up):
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return True
    return False
