"""Start replicas: each with a keeper that the fork server or a warm process forks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from drumline.engine.local.forker import Forker
from drumline.engine.local.memory_limits import MemoryLimits
from drumline.engine.local.replica import LocalReplica
from drumline.engine.local.trace import open_trace
from drumline.engine.local.warm.choice import is_worth_waiting
from drumline.engine.local.warm.client import PREPARING, WarmProcesses, make_warm_request
from drumline.engine.local.warm.command import NotWarm
from drumline.plan.types import Launch
from drumline.record import Record
from drumline.run.traces import LOG
from drumline.runtime import TRACE_DIR
from drumline.runtime.order import Descriptors, NextSupervisor, Order
from drumline.runtime.private import make_folder, open_file

_LONGEST_NOTE = 160
_MOST_ASKED = 8  # shell commands that are run at once to find what they execute
_MOST_UNDER_WAY = 32  # orders without an answer; each uses some descriptors


class Start(Record):
    """A replica to start, the descriptors that its keeper inherits, and those of the namespaces that it enters."""

    replica: LocalReplica
    launch: Launch
    env: Callable[[Launch], Mapping[str, str]]
    held: Sequence[int] = ()
    enter: Sequence[int] = ()


class DescriptorCopies:
    """Copies of descriptors for replicas that begin later; each descriptor is copied once."""

    def __init__(self) -> None:
        self._copies: dict[int, int] = {}

    def of(self, descriptors: Iterable[int]) -> tuple[int, ...]:
        """Return copies of these descriptors; raise OSError if no descriptor is free."""
        for each in descriptors:
            if each not in self._copies:
                self._copies[each] = os.dup(each)
        return tuple(self._copies[each] for each in descriptors)

    def close(self) -> None:
        """Close all copies."""
        for each in self._copies.values():
            os.close(each)
        self._copies.clear()


class Starter:
    """Orders keepers for the replicas of one run."""

    def __init__(
        self,
        *,
        boot: str,
        file_limits: tuple[int, int],
        memory: MemoryLimits,
        lease: tuple[str, float] | None = None,
        next_supervisor: NextSupervisor | None = None,
    ) -> None:
        self._next_supervisor = next_supervisor
        self._lease = lease or ("", 0.0)
        self._boot = boot
        self._file_limits = file_limits
        self._memory = memory
        self._under_way = asyncio.Semaphore(_MOST_UNDER_WAY)

    async def order(self, start: Start, forker: Forker, news: int, note: str) -> int | None:
        """Have a keeper forked and return its pid; None if this replica was started before.

        The keeper writes to the pipe `news` when the replica starts. Raise OSError if no keeper can be forked, and
        ForkerLost if it is unknown whether one was.
        """
        async with self._under_way:
            with self._prepared(start, news, note) as prepared:
                return await forker(*prepared) if prepared else None

    @contextmanager
    def _prepared(self, start: Start, news: int, note: str) -> Iterator[tuple[Order, Descriptors] | None]:
        """Lock the trace and open the log of a replica during the block; yield its order, None if it was started."""
        which, folder, launch = start.replica.id, start.replica.folder, start.launch
        make_folder(folder)
        trace = open_trace(start.replica.path)
        if trace is None:
            yield None
            return
        try:
            order = Order(
                name=f"{which.replica} {which.attempt} {which.incarnation}",
                argv=launch.replica.argv,
                env={**start.env(launch), TRACE_DIR: str(folder)},
                workdir=launch.place.workdir,
                boot=self._boot,
                file_limits=self._file_limits,
                group=self._memory.make(folder, which.attempt, launch.replica.resources.memory_bytes),
                note=note[:_LONGEST_NOTE],
                lease=self._lease[0],
                lease_seconds=self._lease[1],
                next_supervisor=self._next_supervisor,
            )
            log = open_file(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                yield order, Descriptors(trace, log, news, start.held, start.enter)
            finally:
                os.close(log)
        finally:
            os.close(trace)


class WarmChooser:
    """Chooses warm processes for replicas that start together.

    If their warm process is not ready, they wait for it if that is faster with these `cpus`, or if `cpus` is None.
    Otherwise they start cold, and the warm process is prepared for the next start.
    """

    def __init__(self, warm: WarmProcesses, replicas: int, cpus: float | None) -> None:
        self._warm = warm
        self._waits = cpus is None or is_worth_waiting(warm.kind.framework, replicas, cpus)
        self._ready: dict[str, bool] = {}
        self._asked = asyncio.Semaphore(_MOST_ASKED)

    async def open(self, start: Start) -> Forker:
        """Return a forker for this replica once its warm process is ready; raise NotWarm if it has to start cold."""
        launch = start.launch
        async with self._asked:
            request = await make_warm_request(
                self._warm.kind, launch.replica.argv, start.env(launch), launch.place.workdir
            )
        if request.key not in self._ready:
            self._ready[request.key] = self._waits or self._warm.is_ready(request)
        if not self._ready[request.key]:
            self._warm.prepare(request)
            raise NotWarm(PREPARING)
        return await self._warm.open(request, waits=self._waits)
