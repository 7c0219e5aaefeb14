"""Placements of the attempts of a run: requested from its hosts, and stored on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from drumline.engine.protocol import MustWait, ReportEvent
from drumline.engine.ssh.host_placement import HostPlacement, read_placement, write_placement
from drumline.engine.ssh.placement_request import PlacementRequest
from drumline.run.event import RoomFound
from drumline.runtime.keeper import now

PATIENCE_SECONDS = 10.0  # for hosts that do not answer, before the run is reported as waiting for them
_SLOW_FACTOR = 3  # times as long for hosts that are connected and have not answered yet
_HINDERED_SECONDS = 1.0  # for hosts that could not be reached and are retried
_POLL_SECONDS = 0.1

Answer = tuple[HostPlacement, Sequence[str]]


class AttemptPlacements:
    """Requests the placement of each attempt and stores it; placements of an earlier supervisor are read from disk."""

    def __init__(self, run_dir: Path, report: ReportEvent, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._run_dir = run_dir
        self._report = report
        self.patience_seconds = patience_seconds
        self.attempt = 0  # the current one
        self._asked: dict[int, asyncio.Task[Answer]] = {}
        self._known: dict[int, HostPlacement] = {}
        self.last: HostPlacement | None = None

    async def ask(self, attempt: int, request: PlacementRequest) -> Answer:
        """Return the placement of an attempt, and warnings; raise MustWait if the hosts take long to answer.

        After MustWait, the event RoomFound is reported when they have answered. The request is not sent again: the next
        call returns that answer.
        """
        asked = self._asked.get(attempt)
        is_new = asked is None
        if asked is None:
            asked = self._asked[attempt] = asyncio.create_task(request.place(attempt))
        if not await self._wait(asked, request):
            if is_new:
                asked.add_done_callback(partial(self._answered, attempt))
            raise MustWait(request.waits_for)
        del self._asked[attempt]
        placed, warnings = asked.result()
        self.keep(attempt, placed)
        return placed, warnings

    async def _wait(self, asked: asyncio.Task[Answer], request: PlacementRequest) -> bool:
        """Wait for an answer while it may arrive soon; return whether it has arrived."""
        began = now()
        while not asked.done():
            patience = self.patience_seconds * (_SLOW_FACTOR if request.is_slow else 1)
            if now() - began >= (min(_HINDERED_SECONDS, patience) if request.is_hindered else patience):
                return False
            await asyncio.wait({asked}, timeout=_POLL_SECONDS)
        return True

    def _answered(self, attempt: int, asked: asyncio.Task[Answer]) -> None:
        """Report that the attempt that waits for this answer can be placed."""
        if not asked.cancelled():
            asked.exception()  # marked as retrieved: the next call of `ask` raises it, but there may be none
            self._report(RoomFound(attempt))

    def close(self) -> None:
        """Cancel all requests."""
        for asked in self._asked.values():
            asked.cancel()

    def keep(self, attempt: int, placed: HostPlacement) -> None:
        """Store the placement of an attempt, also for the next supervisor."""
        write_placement(self._run_dir, attempt, placed)
        self._known[attempt] = self.last = placed

    def get(self, attempt: int) -> HostPlacement | None:
        """Return the placement of an attempt; None if it was not placed."""
        if attempt not in self._known and (found := read_placement(self._run_dir, attempt)):
            self._known[attempt] = found
        return self._known.get(attempt)

    def takes_part(self, host: str) -> bool:
        """Return whether a host has replicas in the current attempt; True if that attempt is not placed yet."""
        placed = self.get(self.attempt)
        return placed is None or host in placed.hosts.values()
