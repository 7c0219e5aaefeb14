"""Where the attempts of a run are: asked of its hosts, and kept on disk."""

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

PATIENCE_SECONDS = 10.0  # with hosts that do not answer, before the run is said to wait for them
_SLOW = 3  # times as much with those that have let us in, and are about to answer
_HINDERED_SECONDS = 1.0  # with those that are known to be away, and are tried again
_MOMENT_SECONDS = 0.1

Answer = tuple[HostPlacement, Sequence[str]]


class AttemptPlacements:
    """Asks for places, and remembers those of each attempt, also those that an earlier supervisor asked for."""

    def __init__(self, run_dir: Path, tell: ReportEvent, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._run_dir = run_dir
        self._tell = tell
        self.patience_seconds = patience_seconds
        self.attempt = 0  # the current one
        self._asked: dict[int, asyncio.Task[Answer]] = {}
        self._known: dict[int, HostPlacement] = {}
        self.last: HostPlacement | None = None

    async def ask(self, attempt: int, request: PlacementRequest) -> Answer:
        """Where everybody of an attempt goes, and warnings; raise MustWait if hosts take long, and tell when they have.

        What was asked is not asked again: whoever comes back gets the answer to the first question.
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
        """Wait for an answer while it may come soon."""
        began = now()
        while not asked.done():
            patience = self.patience_seconds * (_SLOW if request.is_slow else 1)
            if now() - began >= (min(_HINDERED_SECONDS, patience) if request.is_hindered else patience):
                return False
            await asyncio.wait({asked}, timeout=_MOMENT_SECONDS)
        return True

    def _answered(self, attempt: int, asked: asyncio.Task[Answer]) -> None:
        """Have the attempt placed that waits for this answer."""
        if not asked.cancelled():
            asked.exception()  # it is raised where the attempt is placed, unless that is given up
            self._tell(RoomFound(attempt))

    def close(self) -> None:
        """Wait for no answer any more."""
        for asked in self._asked.values():
            asked.cancel()

    def keep(self, attempt: int, placed: HostPlacement) -> None:
        """Remember where an attempt is, whoever takes the run up."""
        write_placement(self._run_dir, attempt, placed)
        self._known[attempt] = self.last = placed

    def get(self, attempt: int) -> HostPlacement | None:
        """Where an attempt is; None if nobody has placed it."""
        if attempt not in self._known and (found := read_placement(self._run_dir, attempt)):
            self._known[attempt] = found
        return self._known.get(attempt)

    def takes_part(self, host: str) -> bool:
        """Return whether a host has replicas in the current attempt, or may get some: it is not placed yet."""
        placed = self.get(self.attempt)
        return placed is None or host in placed.hosts.values()
