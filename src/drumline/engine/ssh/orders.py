"""Orders to hosts: a host receives all its orders whenever it connects. An order may be sent twice.

Reports of ends are held back while a host has not carried out its orders: it may still report an earlier end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from drumline.engine.agent.answers import Done
from drumline.engine.agent.errors import MalformedError, UnreachableError
from drumline.engine.agent.launches import incarnation_to_text, launch_to_data
from drumline.engine.protocol import ReportEvent
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.helpers import Helpers
from drumline.engine.ssh.replicas import HostReplica, HostReplicas
from drumline.engine.tasks import Tasks
from drumline.engine.tracker import LONGEST_HOLD_SECONDS
from drumline.errors import DrumlineError
from drumline.run.event import EngineFailed

K = TypeVar("K")
Order = dict[str, Any]

_PATIENCE_SECONDS = 5.0  # for which ends are held back for a host that is not connected


class Orders:
    """Sends each host its orders, in tasks; an order that a host refuses fails the attempt."""

    def __init__(
        self,
        connections: Mapping[str, HostConnection],
        replicas: HostReplicas,
        helpers: Helpers,
        tasks: Tasks,
        report: ReportEvent,
    ) -> None:
        self._connections = connections
        self._replicas = replicas
        self._helpers = helpers
        self._tasks = tasks
        self._report = report

    def send(self, host: str) -> None:
        """Begin to send a host all its orders; a host that does not answer receives them when it connects."""
        number = self.hold(host)
        if self._connections[host].is_up:
            self._tasks.begin(self._send(host, number))

    async def _send(self, host: str, number: int) -> None:
        moment = asyncio.get_running_loop().time()
        replicas = replica_orders(self._replicas.of(host), os.environ, moment)
        if await self.send_all(host, [*self._helpers.orders(host), *replicas]):
            self._replicas.tracker.release(host, number)

    async def send_all(self, host: str, orders: Sequence[Order]) -> bool:
        """Send a host these orders; return False if the connection breaks: they are sent again when it connects.

        An order that the host refuses is reported as EngineFailed.
        """
        for order in orders:
            try:
                await self._connections[host].ask(order, Done)
            except (UnreachableError, MalformedError):
                return False
            except DrumlineError as error:
                self._report(EngineFailed(order["attempt"], error.message))
        return True

    def hold(self, host: str) -> int:
        """Hold reports of ends back, for a limited time, while a host receives orders; return the hold's number."""
        number = self._replicas.tracker.hold(host)
        self._tasks.begin(self._release_in_time(host, number))
        return number

    async def _release_in_time(self, host: str, number: int) -> None:
        """Release a hold after `_PATIENCE_SECONDS`; after `LONGEST_HOLD_SECONDS` if the host stays connected."""
        tracker = self._replicas.tracker
        for _ in range(round(LONGEST_HOLD_SECONDS / _PATIENCE_SECONDS)):
            await asyncio.sleep(_PATIENCE_SECONDS)
            if not tracker.is_held(host, number) or self._connections[host].shell is None:
                break
        tracker.release(host, number)


def replica_orders(replicas: Iterable[HostReplica], environ: Mapping[str, str], moment: float) -> list[Order]:
    """Return the orders to start and to stop these replicas of one host; secrets are read from `environ`."""
    wanted = [each for each in replicas if each.is_ordered]
    starts = [each for each in wanted if each.launch and each.kill_at is None]
    stops = [each for each in wanted if each.kill_at is not None]
    found = [_start(attempt, some, environ) for attempt, some in group_by(starts, lambda each: each.id.attempt).items()]
    for (attempt, kill_at), some in group_by(stops, lambda each: (each.id.attempt, each.kill_at)).items():
        found.append(_stop(attempt, some, max(0.0, (kill_at or 0.0) - moment)))
    return found


def group_by(replicas: Iterable[HostReplica], key: Callable[[HostReplica], K]) -> dict[K, list[HostReplica]]:
    """Return the replicas by the value of `key`."""
    found: dict[K, list[HostReplica]] = {}
    for each in replicas:
        found.setdefault(key(each), []).append(each)
    return found


def _start(attempt: int, replicas: Sequence[HostReplica], environ: Mapping[str, str]) -> Order:
    launches = [launch_to_data(each.launch, environ) for each in replicas if each.launch]
    return {"do": "start", "attempt": attempt, "launches": launches, "offsets": _offsets(replicas)}


def _stop(attempt: int, replicas: Sequence[HostReplica], grace_seconds: float) -> Order:
    names = [incarnation_to_text(each.id) for each in replicas]
    return {
        "do": "stop",
        "incarnations": names,
        "attempt": attempt,
        "grace": grace_seconds,
        "offsets": _offsets(replicas),
    }


def _offsets(replicas: Iterable[HostReplica]) -> dict[str, int]:
    """Return the size in bytes of each replica's log on this machine."""
    return {incarnation_to_text(each.id): each.offset for each in replicas}
