"""The replicas of one run as processes of this machine, each with a keeper that outlives it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.local.forker import Forker, ForkerLost, ForkServer
from drumline.engine.local.keepers import Keepers
from drumline.engine.local.memory_limits import MemoryLimits
from drumline.engine.local.start import DescriptorCopies, Start, Starter, WarmChooser
from drumline.engine.local.trace import Trace, wait_for_keeper
from drumline.engine.local.warm.command import NotWarm
from drumline.engine.protocol import ReportEvent
from drumline.engine.tasks import Tasks
from drumline.errors import EngineError
from drumline.plan.types import Launch, ReplicaId
from drumline.run.event import EngineFailed
from drumline.run.incarnation import Incarnation
from drumline.runtime.order import NextSupervisor

if TYPE_CHECKING:
    from drumline.engine.local.network import Network
    from drumline.engine.local.resource_claim import ResourceClaim
    from drumline.engine.local.warm.client import WarmProcesses

_TRIES = 3  # attempts to start a replica if the fork server ends each time


class Processes:
    """Starts and stops the replicas of one run; owns the fork server, and the pipe that keepers write to."""

    def __init__(
        self,
        run_dir: Path,
        *,
        boot: str,
        file_limits: tuple[int, int],
        loop: asyncio.AbstractEventLoop,
        report: ReportEvent,
        lease: tuple[str, float] | None = None,
        next_supervisor: NextSupervisor | None = None,
    ) -> None:
        self._loop = loop
        self._report = report
        self._starts: tuple[int, int] | None = None  # a pipe; each process writes to it before it becomes a replica
        self._fork_server = ForkServer(loop)
        self._warm: WarmProcesses | None = None
        self._tasks = Tasks(loop)
        memory = MemoryLimits(run_dir, report)
        self._keepers = Keepers(run_dir, boot=boot, memory=memory, loop=loop, report=report, forkers=self._forkers)
        self._tracker = self._keepers.tracker
        self._starter = Starter(
            boot=boot, file_limits=file_limits, memory=memory, lease=lease, next_supervisor=next_supervisor
        )

    def start(
        self,
        launches: Sequence[Launch],
        env_of: Callable[[Launch], Mapping[str, str]],
        held: Mapping[ReplicaId, Sequence[int]],
        network: Network | None = None,
        warm: WarmProcesses | None = None,
        resources: ResourceClaim | None = None,
    ) -> None:
        """Start every replica that was not started before, and watch all; report their starts and ends.

        If a replica cannot be started, EngineFailed is reported. `env_of` is called only for replicas that start, since
        a later supervisor may not have the secrets of those that run. `held` are the descriptors that the keeper of
        each replica inherits. Replicas are forked from a warm process if one is ready, or if waiting for it is faster
        with the CPUs of `resources`.
        """
        self._warm = warm
        wanted = {Incarnation(each.replica.id, each.attempt, each.incarnation): each for each in launches}
        idle = [each for each in self._tracker.ask(wanted) if each.task is None and each.end is None]
        begun = [each for each in idle if each.has_begun]
        self._keepers.adopt(begun)
        copies = DescriptorCopies()  # the caller closes the originals
        starts = []
        try:
            for replica in (each for each in idle if each not in begun):
                namespaces = network.namespaces(replica.id.replica) if network else None
                claims = (*held.get(replica.id.replica, ()), *(namespaces.held if namespaces else ()))
                enter = copies.of(namespaces.enter if namespaces else ())
                starts.append(Start(replica, wanted[replica.id], env_of, copies.of(claims), enter))
        except BaseException:
            copies.close()
            raise
        chooser = WarmChooser(warm, len(starts), resources.cpus if resources else None) if warm else None
        tasks = [self._tasks.begin(self._begin(each, chooser)) for each in starts]
        for start, task in zip(starts, tasks, strict=True):
            start.replica.task = task
        self._tasks.begin(_close_after(copies, tasks))

    def prepare(self) -> None:
        """Start the fork server, so that it is ready for the first order."""
        with suppress(OSError):  # the first order reports the error
            self._fork_server.start()

    def stop(self, incarnations: Iterable[Incarnation], *, grace_seconds: float) -> None:
        """Send TERM, and KILL after the grace; each end is reported when no process of the replica is left."""
        replicas = self._tracker.ask(incarnations)
        for each in replicas:
            if each.task:
                each.task.cancel()
                each.task = None
        self._keepers.stop(replicas, grace_seconds)

    def close(self) -> None:
        """End the fork server and close the pipe; the next start opens both again."""
        self._fork_server.close()
        if self._starts:
            self._loop.remove_reader(self._starts[0])
            for descriptor in self._starts:
                os.close(descriptor)
            self._starts = None

    def has_begun(self, incarnation: Incarnation) -> bool:
        """Return whether a start was ordered, now or by an earlier supervisor; it is ordered only once."""
        return self._tracker.find(incarnation).has_begun

    def is_beginning(self, incarnation: Incarnation) -> bool:
        """Return whether the keeper of an incarnation is not forked yet, but will be."""
        return self._tracker.find(incarnation).task is not None

    def traces(self) -> Iterator[Path]:
        """Yield the trace folders of replicas that run, and of those that ended since the last call."""
        return self._tracker.traces()

    def measured(self) -> Iterator[tuple[Incarnation, int | Trace]]:
        """Yield running replicas, with their keeper's pid, and those that ended since the last call with the trace."""
        for each in self._tracker:
            if each.take_measured():
                if each.watched is not None and each.keeper:
                    yield each.id, each.keeper
                elif each.is_over and each.trace.exit:
                    yield each.id, each.trace

    def adopt(self, incarnations: Iterable[Incarnation]) -> None:
        """Watch these incarnations and report their ends, also if an earlier supervisor started them."""
        self._keepers.adopt(self._tracker.ask(incarnations))

    def living(self) -> dict[Incarnation, int]:
        """Return the running replicas, without helpers, with the pids of their keepers."""
        return self._keepers.living()

    def _forkers(self) -> set[int]:
        return self._fork_server.pids | (self._warm.pids if self._warm else set())

    async def _begin(self, start: Start, chooser: WarmChooser | None) -> None:
        """Begin a replica, from a warm process if one is chosen; report EngineFailed if that fails."""
        which = start.replica.id
        try:
            note = await self._begin_warm(start, chooser) if chooser else ""
            if note is None:
                return
            for _ in range(_TRIES):
                if await self._begin_from(self._fork_server.fork, start, note):
                    return
            why = f"{which.replica} cannot be started: the fork server has ended"
        except EngineError as error:
            why = error.message
        except OSError as error:
            why = f"{which.replica} cannot be started: {error.strerror or error}"
        finally:
            start.replica.task = None
        self._report(EngineFailed(which.attempt, why))

    async def _begin_warm(self, start: Start, chooser: WarmChooser) -> str | None:
        """Begin a replica from a warm process; return None, or a note why it has to start cold."""
        try:
            if await self._begin_from(await chooser.open(start), start, "warm"):
                return None
        except NotWarm as reason:
            return f"cold: {reason}"
        except OSError as error:
            return f"cold: {error.strerror}"
        return "cold: the warm process has ended"

    async def _begin_from(self, forker: Forker, start: Start, note: str) -> bool:
        """Order a keeper and watch it; return whether the replica has begun, by this keeper or an earlier one."""
        replica = start.replica
        try:
            pid = await self._starter.order(start, forker, self._open_starts(), note)
        except ForkerLost:
            pid = None
            if await wait_for_keeper(replica.path) is None:
                return False
        if pid is not None and not replica.is_kept:
            try:
                self._keepers.watch(replica, pid)
            except OSError:  # it has ended, or no descriptor is free
                pid = None
                if await wait_for_keeper(replica.path) is None:
                    return False
        if pid is None:
            self._keepers.adopt([replica])
            return True
        if replica.has_started or replica.watched is None:
            return True
        replica.begins = self._loop.create_future()
        return await replica.begins

    def _open_starts(self) -> int:
        """Return the end of the pipe to which keepers write; open the pipe if it is not open."""
        if self._starts is None:
            self._starts = os.pipe()
            self._loop.add_reader(self._starts[0], self._read_starts, self._starts[0], bytearray())
        return self._starts[1]

    def _read_starts(self, started: int, unread: bytearray) -> None:
        """Read from the pipe which processes have become replicas, and report their starts."""
        *lines, unread[:] = (unread + os.read(started, 65536)).split(b"\n")
        for line in lines:
            name, pid, unlimited, note = json.loads(line)
            replica, attempt, incarnation = name.split(" ")
            found = self._tracker.find(Incarnation(ReplicaId.parse(replica), int(attempt), int(incarnation)))
            self._keepers.report_start(found, Trace(pid=pid, unlimited=unlimited, note=note))


async def _close_after(copies: DescriptorCopies, tasks: Iterable[asyncio.Task[None]]) -> None:
    """Close these descriptors when all these starts are done."""
    try:
        for task in tasks:
            await asyncio.wait({task})
    finally:
        copies.close()
