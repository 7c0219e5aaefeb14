"""What is done for a run beside everything else: hosts get what they need, are told what is wanted, and are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from drumline.engine.agent.answers import Done
from drumline.engine.agent.errors import AwayError, MalformedError
from drumline.engine.log import log
from drumline.engine.ssh.link import Link
from drumline.engine.ssh.luggage import Luggage
from drumline.engine.ssh.placing import CONNECT_SECONDS, PLACE_SECONDS
from drumline.errors import DrumlineError
from drumline.runtime.keeper import now

RELEASE_SECONDS = 30.0
_RISE_SECONDS = 10.0
_PAUSE_SECONDS = 0.1
_STALLED_SECONDS = 30.0
_STALLED_BYTES = 1 << 16
_HINDERED_SECONDS = 1.0  # that others wait for a host that cannot be reached


class Errands:
    """The errands of one run."""

    def __init__(self, links: Mapping[str, Link], luggage: Luggage) -> None:
        self._links = links
        self._luggage = luggage

    async def supply(
        self,
        host: str,
        goods: Callable[[], Awaitable[None]],
        *,
        while_: Callable[[], bool],
        refused: Callable[[str], None],
        done: Callable[[], None],
    ) -> None:
        """Bring a host what it needs as soon as it answers, as long as somebody waits for that."""
        link = self._links[host]
        while while_():
            if not await link.rise(PLACE_SECONDS):
                continue
            try:
                await goods()
            except DrumlineError as error:
                if isinstance(error, AwayError) or not link.is_up:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                refused(error.message)
            else:
                done()
            return

    async def assemble(self, seconds: float, found: Callable[[list[str]], None], failed: Callable[[str], None]) -> None:
        """Bring word which hosts answer within a time, or why none does; who cannot be reached comes later."""
        links, began = list(self._links.values()), now()
        rising = {asyncio.ensure_future(link.rise(min(CONNECT_SECONDS, seconds))): link for link in links}
        waiting = set(rising)
        while waiting:
            _, waiting = await asyncio.wait(waiting, timeout=_PAUSE_SECONDS)
            are_others_up = any(link.is_up for link in links) and all(rising[each].is_hindered for each in waiting)
            if are_others_up and now() - began >= _HINDERED_SECONDS:
                break
        for each in waiting:
            each.cancel()
        if up := [link.host.name for link in links if link.is_up]:
            found(up)
        else:
            trouble = links[0].trouble
            failed(trouble.message if trouble else f"{links[0].host.name} does not answer")

    async def tell(
        self,
        host: str,
        messages: Sequence[dict[str, Any]],
        refused: Callable[[int, str], None],
        done: Callable[[str], None],
    ) -> None:
        """Tell a host something, and bring word when it has done all of it; who breaks off is told again."""
        for message in messages:
            try:
                await self._links[host].ask(message, Done)
            except (AwayError, MalformedError):
                return
            except DrumlineError as error:
                refused(message["attempt"], error.message)
        done(host)

    async def collect(self, warn: Callable[[str], None], then: Callable[[], None]) -> None:
        """Fetch what the chief has written, then go on; that it cannot be fetched changes no end."""
        try:
            await self._collect()
        except DrumlineError as error:
            warn(f"the output is not here: {error.message}")
        then()

    async def _collect(self) -> None:
        """Fetch what the chief has written; raise EngineError if its host sends next to nothing for a while."""
        collecting = asyncio.ensure_future(self._luggage.collect())
        received = self._received_bytes
        try:
            while not (await asyncio.wait({collecting}, timeout=_STALLED_SECONDS))[0]:
                if abs(self._received_bytes - received) < _STALLED_BYTES:
                    raise AwayError(f"its host has sent next to nothing for {_STALLED_SECONDS:g} s")
                received = self._received_bytes
            await collecting
        finally:
            collecting.cancel()

    @property
    def _received_bytes(self) -> int:
        """What commands on all hosts have said; less after a connection broke."""
        return sum(link.shell.received_bytes for link in self._links.values() if link.shell)

    async def release(self, hosts: Iterable[str], collect_seconds: float) -> list[str]:
        """Fetch what is not here within this time; then return the hosts that say that nothing is left."""
        try:
            async with asyncio.timeout(collect_seconds):
                await self._collect()
        except (DrumlineError, TimeoutError) as error:
            why = error.message if isinstance(error, DrumlineError) else f"not sent within {collect_seconds:g} s"
            log(f"what the chief has written last is not here: {why}")

        async def release(host: str) -> str:
            link = self._links[host]
            with suppress(TimeoutError, DrumlineError):
                if await link.rise(_RISE_SECONDS):
                    await asyncio.wait_for(link.ask({"do": "release"}, Done), RELEASE_SECONDS)
                    return host
            return ""

        return [host for host in await asyncio.gather(*map(release, hosts)) if host]

    async def hang_up(self) -> None:
        """Close every connection."""
        for link in self._links.values():
            if link.shell:
                await link.shell.close()

    async def let_go(self, host: str) -> None:
        """Have a host give back what it claimed and nobody started."""
        with suppress(DrumlineError):  # who does not hear it has let go already
            await self._links[host].say({"do": "close"})
