"""The replicas of one run as processes of this machine, each behind its keeper."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.local.forker import Forker, ForkerLost, ForkServer
from drumline.engine.local.life import MARK, Life
from drumline.engine.local.limit import Limits
from drumline.engine.local.start import Chooser, Copies, Start, Starter
from drumline.engine.local.stray import find_strays
from drumline.engine.local.trace import Trace, read_trace, starving
from drumline.engine.local.warm.command import NotWarm
from drumline.engine.protocol import Tell
from drumline.engine.tasks import Tasks
from drumline.errors import EngineError
from drumline.plan.types import Launch, ReplicaId
from drumline.run.event import EngineFailed, EngineWarned, Exit, ReplicaExited, ReplicaStarted
from drumline.run.traces import LOG, TRACE
from drumline.runtime import keeper
from drumline.runtime.lock import is_locked
from drumline.runtime.order import NextSupervisor

if TYPE_CHECKING:
    from drumline.engine.local.network import Network
    from drumline.engine.local.room import Room
    from drumline.engine.local.warm.client import WarmProcesses

_MOMENT_SECONDS = 0.005
_TRIES = 3  # of a fork server that is killed, before its replica counts as one that cannot be started


class _Kept:
    """A life that this supervisor looks after."""

    def __init__(self, life: Life, path: Path) -> None:
        self.life = life
        self.path = path
        self.folder = path.parent  # asked for again and again, and a path remembers what it is in words
        self.keeper: int | None = None
        self.watched: int | None = None  # readable when the keeper has gone
        self.told_start = False
        self.looked_at = False
        self.stopping = False
        self.end: Trace | None = None  # until it is measured
        self.begins: asyncio.Future[bool] | None = None  # whether its keeper began its work


class Processes:
    """Starts, stops and watches the replicas of one run; owns the descriptors that tell of them."""

    def __init__(
        self,
        run_dir: Path,
        *,
        boot: str,
        file_limits: tuple[int, int],
        loop: asyncio.AbstractEventLoop,
        tell: Tell,
        lease: tuple[str, float] | None = None,
        next_supervisor: NextSupervisor | None = None,
    ) -> None:
        self._run_dir = run_dir
        self._boot = boot
        self._loop = loop
        self._tell = tell
        self._kept: dict[Life, _Kept] = {}
        self._over: list[tuple[_Kept, Trace]] = []  # adopted, and found to have ended
        self._memory = Limits(run_dir, tell)
        self._starter = Starter(
            run_dir,
            boot=boot,
            file_limits=file_limits,
            memory=self._memory,
            lease=lease,
            next_supervisor=next_supervisor,
        )
        self._news: tuple[int, int] | None = None  # a pipe: processes say that they are about to become replicas
        self._fork_server = ForkServer(loop)
        self._warm: WarmProcesses | None = None
        self._beginning: dict[Life, asyncio.Task[None]] = {}
        self._early: dict[Life, Trace] = {}  # starts that were told before the answer to their orders was read
        self._tasks = Tasks(loop)
        keeper.become_subreaper()

    def start(
        self,
        launches: Sequence[Launch],
        env_of: Callable[[Launch], Mapping[str, str]],
        held: Mapping[ReplicaId, Sequence[int]],
        network: Network | None = None,
        warm: WarmProcesses | None = None,
        room: Room | None = None,
    ) -> None:
        """Start every life that has not begun before, and watch all; what happens to them is told as events.

        One that cannot be started is told as EngineFailed. An environment is asked for only where it is needed: a
        supervisor that came back may lack the secrets of replicas that run. Those that can be forked from a warm
        process are, where one is ready, or worth waiting for with the CPUs of this `room`.
        """
        self._warm = warm
        copies = Copies()  # the caller closes its own
        starts = []
        try:
            for launch in launches:
                life = Life(launch.replica.id, launch.attempt, launch.incarnation)
                if life in self._beginning:
                    continue
                if life.has_begun(self._run_dir):
                    self._adopt(life)
                    continue
                door = network.door(launch.replica.id) if network else None
                claims = (*held.get(launch.replica.id, ()), *(door.held if door else ()))
                starts.append(Start(launch, env_of, copies.of(claims), copies.of(door.enter if door else ())))
        except BaseException:
            copies.close()
            raise
        finally:
            self._conclude_adopted()
        chooser = Chooser(warm, len(starts), room.cpus if room else None) if warm else None
        tasks = {each.life: self._tasks.begin(self._begin(each, chooser)) for each in starts}
        self._beginning.update(tasks)
        self._tasks.begin(_close_after(copies, tasks.values()))

    def prepare(self) -> None:
        """Start the fork server, so that the first order need not wait for it."""
        with suppress(OSError):  # the first order tells
            self._fork_server.start()

    async def _begin(self, start: Start, chooser: Chooser | None) -> None:
        """Begin a replica, from a warm process where one is chosen; tell if it cannot be."""
        life = start.life
        try:
            note = await self._begin_warm(start, chooser) if chooser else ""
            if note is None:
                return
            for _ in range(_TRIES):
                if await self._begin_from(self._fork_server.fork, start, note):
                    return
            why = f"{life.replica} cannot be started: the fork server has ended"
        except EngineError as error:
            why = error.message
        except OSError as error:
            why = f"{life.replica} cannot be started: {error.strerror or error}"
        finally:
            self._beginning.pop(life, None)
        self._tell(EngineFailed(life.attempt, why))

    async def _begin_warm(self, start: Start, chooser: Chooser) -> str | None:
        """Begin a replica from a warm process; return None, or a note why it is to be started cold."""
        try:
            if await self._begin_from(await chooser.open(start), start, "warm"):
                return None
        except NotWarm as reason:
            return f"cold: {reason}"
        except OSError as error:
            return f"cold: {error.strerror}"
        return "cold: the warm process has ended"

    async def _begin_from(self, forker: Forker, start: Start, note: str) -> bool:
        """Have a keeper forked there and watch it; return whether it has begun its work, or another one had before."""
        life = start.life
        try:
            pid = await self._starter.order(start, forker, self._open_news(), note)
        except ForkerLost:
            if not await self._starter.has_keeper(life):
                return False
            pid = None
        if pid is None:
            self._adopt_again(life)
            return True
        if life not in self._kept:
            try:
                self._watch(_Kept(life, life.folder(self._run_dir) / TRACE), pid)
            except OSError:  # it is gone already, or there is no descriptor for it now
                if not await self._starter.has_keeper(life):
                    return False
                self._adopt_again(life)
                return True
        kept = self._kept[life]
        if kept.told_start or kept.watched is None:
            return True
        kept.begins = self._loop.create_future()
        return await kept.begins

    def _open_news(self) -> int:
        """Return the end of the pipe that keepers write to."""
        if self._news is None:
            self._news = os.pipe()
            self._loop.add_reader(self._news[0], self._read_news, self._news[0], bytearray())
        return self._news[1]

    def _read_news(self, started: int, unread: bytearray) -> None:
        """Tell of processes that are about to become replicas."""
        *lines, unread[:] = (unread + os.read(started, 65536)).split(b"\n")
        for line in lines:
            name, pid, unlimited, note = json.loads(line)
            replica, attempt, incarnation = name.split(" ")
            life = Life(ReplicaId.parse(replica), int(attempt), int(incarnation))
            trace = Trace(pid=pid, unlimited=unlimited, note=note)
            if life in self._beginning and life not in self._kept:
                self._early[life] = trace
            elif kept := self._kept.get(life) or self._adopt(life):  # its keeper may be known from its trace only
                self._told_start(kept, trace)
        self._conclude_adopted()

    def close(self) -> None:
        """End the fork server and read no more news; the next start begins both again."""
        self._fork_server.close()
        if self._news:
            self._loop.remove_reader(self._news[0])
            for descriptor in self._news:
                os.close(descriptor)
            self._news = None

    def stop(self, lives: Sequence[Life], *, grace_seconds: float) -> None:
        """Ask these to end, insist after the grace; each end is told when nothing of the replica is left."""
        for life in lives:
            if task := self._beginning.pop(life, None):
                task.cancel()
            kept = self._kept.get(life) or self._adopt(life)
            if kept is None:
                self._loop.call_later(_MOMENT_SECONDS, partial(self.stop, (life,), grace_seconds=grace_seconds))
                continue
            if kept.watched is None:
                continue
            if grace_seconds > 0 and not kept.stopping:
                self._signal(kept, signal.SIGTERM)
                self._loop.call_later(grace_seconds, partial(self._signal, kept, signal.SIGKILL))
            elif grace_seconds <= 0:
                self._signal(kept, signal.SIGKILL)
            kept.stopping = True
        self._conclude_adopted()

    def has_begun(self, replica: ReplicaId, attempt: int, incarnation: int = 0) -> bool:
        """Return whether a start was ordered, now or by an earlier supervisor; there will be no other."""
        life = Life(replica, attempt, incarnation)
        return life in self._beginning or life.has_begun(self._run_dir)

    def is_beginning(self, replica: ReplicaId, attempt: int, incarnation: int = 0) -> bool:
        """Return whether its keeper is still to be forked."""
        return Life(replica, attempt, incarnation) in self._beginning

    def traces(self) -> Iterator[Path]:
        """The folders of all lives that go on, and of those that ended since this was asked last."""
        for kept in self._kept.values():
            if kept.watched is not None or not kept.looked_at:
                kept.looked_at = kept.watched is None
                yield kept.folder

    def measured(self) -> Iterator[tuple[Life, int | Trace]]:
        """All lives that go on, with their keeper; with their trace those that ended since this was asked last."""
        for kept in self._kept.values():
            if kept.watched is not None and kept.keeper:
                yield kept.life, kept.keeper
            elif kept.end is not None:
                end, kept.end = kept.end, None
                yield kept.life, end

    def take_up(self, lives: Iterable[Life]) -> None:
        """Watch these, also if an earlier supervisor began them; their ends are told."""
        for life in lives:
            self._adopt(life)
        self._conclude_adopted()

    def living(self) -> dict[Life, int]:
        """All lives of the line that go on, with their keepers."""
        return {
            kept.life: kept.keeper
            for kept in self._kept.values()
            if kept.watched is not None and kept.keeper and not kept.life.replica.is_helper
        }

    def _watch(self, kept: _Kept, keeper_pid: int) -> None:
        watched = os.pidfd_open(keeper_pid)
        kept.keeper, kept.watched = keeper_pid, watched
        self._kept[kept.life] = kept
        self._loop.add_reader(watched, lambda: self._keeper_gone(kept))
        if early := self._early.pop(kept.life, None):
            self._told_start(kept, early)

    def _adopt(self, life: Life) -> _Kept | None:
        """Take up a life that an earlier supervisor began. None if it is too young yet."""
        if life in self._kept:
            return self._kept[life]
        path = life.folder(self._run_dir) / TRACE
        kept = _Kept(life, path)
        trace = read_trace(path)
        if is_locked(path) and trace.boot in (None, self._boot):  # else it is kept on another machine: homes are shared
            again = partial(self._loop.call_later, _MOMENT_SECONDS, partial(self._adopt_again, life))
            if trace.keeper is None:  # the fork is so young that it has not written its first line
                again()
                return None
            try:
                self._watch(kept, trace.keeper)
            except ProcessLookupError:
                trace = read_trace(path)
            except OSError:  # no descriptor is left for it at the moment
                again()
                return None
            else:
                self._look_for_start(kept)
                return kept
        self._kept[life] = kept
        self._over.append((kept, trace))
        return kept

    def _look_for_start(self, kept: _Kept) -> None:
        """Tell of a start whose news went to an earlier supervisor, or is still to come and will."""
        trace = read_trace(kept.path)
        self._told_start(kept, trace)
        if trace.pid is None and kept.watched is not None:
            self._loop.call_later(_MOMENT_SECONDS, partial(self._look_for_start, kept))

    def _adopt_again(self, life: Life) -> None:
        self._adopt(life)
        self._conclude_adopted()

    def _conclude_adopted(self) -> None:
        """Tell the ends that came before we did in the order in which they came; those that nobody saw come last."""
        over, self._over = self._over, []
        over.sort(key=lambda each: (each[1].exit is None, each[1].at_seconds))
        for kept, trace in over:
            self._conclude(kept, trace)

    def _told_start(self, kept: _Kept, trace: Trace) -> None:
        if trace.pid is not None and not kept.told_start:
            kept.told_start = True
            _settle(kept.begins, is_begun=True)
            self._tell(
                ReplicaStarted(kept.life.replica, kept.life.attempt, kept.life.incarnation, trace.pid, trace.note)
            )
            if trace.unlimited:
                message = f"{kept.life.replica} runs without its memory limit: {trace.unlimited}"
                self._tell(EngineWarned(kept.life.attempt, message))

    def _keeper_gone(self, kept: _Kept) -> None:
        if kept.watched is not None:
            self._loop.remove_reader(kept.watched)
            os.close(kept.watched)
            kept.watched = None
        trace = read_trace(kept.path)
        is_begun = trace.keeper is not None or kept.stopping
        if _settle(kept.begins, is_begun=is_begun) and not is_begun:
            del self._kept[kept.life]  # it is begun again
            return
        self._conclude(kept, trace)

    def _conclude(self, kept: _Kept, trace: Trace) -> None:
        """Tell how a life ended; what a killed keeper left behind is ended first, wherever it hides."""
        self._told_start(kept, trace)
        _reap()
        if not trace.over and self._end_strays(kept, trace):
            self._loop.call_later(_MOMENT_SECONDS, partial(self._conclude, kept, trace))
            return
        end = self._explained(kept, trace, trace.exit) if trace.exit else self._unseen(kept, trace)
        kept.end = trace if trace.exit else None
        self._memory.clear(kept.folder)
        self._tell(
            ReplicaExited(
                kept.life.replica,
                kept.life.attempt,
                kept.life.incarnation,
                end,
                trace.at_seconds if trace.exit else keeper.now(),
            )
        )

    def _explained(self, kept: _Kept, trace: Trace, end: Exit) -> Exit:
        """The same end; if somebody else killed it, perhaps with the kernel's word that this was for want of memory."""
        if end.signal != signal.SIGKILL or end.out_of_memory or kept.stopping or trace.pid is None:
            return end
        from drumline.engine.local.kernel import killed_for_memory  # noqa: PLC0415 - few are ever killed

        words = killed_for_memory(trace.pid, trace.at_seconds)
        return end.replace(message=words, out_of_memory=True) if words else end

    def _unseen(self, kept: _Kept, trace: Trace) -> Exit:
        """The end of a life that no keeper wrote down; if it was want of memory, its group still knows."""
        gone = "its keeper is gone" if trace.keeper else "it was never started"
        group = self._memory.group(kept.folder)
        words, starved = starving(keeper.out_of_memory(str(group)) if group else {})
        return Exit(message=f"{gone}; {words}" if starved else gone, out_of_memory=starved)

    def _end_strays(self, kept: _Kept, trace: Trace) -> bool:
        """Kill everybody of a life without keeper; say whether somebody may still be there."""
        keepers = {each.keeper for each in self._kept.values() if each.watched is not None and each.keeper}
        keepers |= self._fork_server.pids | (self._warm.pids if self._warm else set())
        mark = f"{MARK}={kept.life.mark(self._run_dir)}"
        group = self._memory.members(kept.folder)
        strays = find_strays(
            trace, boot=self._boot, mark=mark, log=kept.path.with_name(LOG), group=group, keepers=keepers
        )
        ended = [keeper.signal_process(pid, signal.SIGKILL) for pid in strays]
        return any(ended)

    def _signal(self, kept: _Kept, number: int) -> None:
        if kept.watched is None:
            return
        trace = read_trace(kept.path)
        if trace.pid is None and not kept.told_start:
            self._loop.call_later(_MOMENT_SECONDS, lambda: self._signal(kept, number))
        elif self._is_current(trace) and trace.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(trace.pid, number)
                os.killpg(trace.pid, signal.SIGCONT)  # who is stopped hears nothing
        elif kept.keeper and (number == signal.SIGKILL or trace.pid is None):
            # The replica has ended and left processes behind, or it has changed its own trace.
            for pid in keeper.descendants([kept.keeper]):
                keeper.signal_process(pid, number)

    def _is_current(self, trace: Trace) -> bool:
        """Return whether a trace names a process of this boot that has not ended."""
        if trace.pid is None or trace.exit is not None or trace.boot != self._boot:
            return False
        return keeper.start_ticks(trace.pid) == trace.ticks


async def _close_after(copies: Copies, tasks: Iterable[asyncio.Task[None]]) -> None:
    """Close these descriptors when the replicas have begun that they are for."""
    try:
        for task in tasks:
            await asyncio.wait({task})
    finally:
        copies.close()


def _settle(begins: asyncio.Future[bool] | None, *, is_begun: bool) -> bool:
    """Tell the task that begins a replica what became of its keeper; return whether there is one that waits."""
    if begins is None or begins.done():
        return False
    begins.set_result(is_begun)
    return True


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
