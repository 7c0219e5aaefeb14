"""Watch the keepers of one run's replicas, report starts and ends, and stop replicas."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.local.exits import explain_exit, unrecorded_exit
from drumline.engine.local.leftovers import find_leftovers
from drumline.engine.local.memory_limits import MemoryLimits
from drumline.engine.local.replica import LocalReplica
from drumline.engine.local.trace import Trace
from drumline.engine.notes import End
from drumline.engine.protocol import ReportEvent
from drumline.engine.tracker import ReplicaTracker
from drumline.run.incarnation import Incarnation
from drumline.runtime import keeper
from drumline.runtime.lock import is_locked

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_MOMENT_SECONDS = 0.005


class Keepers:
    """Watches keepers by pidfds, which it owns; reports what happens to their replicas."""

    def __init__(
        self,
        run_dir: Path,
        *,
        boot: str,
        memory: MemoryLimits,
        loop: AbstractEventLoop,
        report: ReportEvent,
        forkers: Callable[[], set[int]],
    ) -> None:
        """Watch the keepers of a run; `forkers` returns the processes that fork them, which are not leftovers."""
        self.tracker = ReplicaTracker(run_dir, LocalReplica, loop, report)
        self._boot = boot
        self._memory = memory
        self._loop = loop
        self._forkers = forkers
        keeper.become_subreaper()

    def watch(self, replica: LocalReplica, pid: int) -> None:
        """Watch the keeper of a replica; raise OSError if it has ended, or if no descriptor is free."""
        replica.watched = os.pidfd_open(pid)
        replica.keeper, replica.is_kept = pid, True
        self._loop.add_reader(replica.watched, self._keeper_ended, replica)

    def adopt(self, replicas: Iterable[LocalReplica]) -> None:
        """Watch the keepers of these replicas, and report the end of each replica without a keeper.

        A keeper that was just forked and has not written its trace yet is watched a moment later.
        """
        gone = [each for each in replicas if not each.is_kept and not self._find_keeper(each)]
        with self.tracker.in_order():
            for each in gone:  # after all existing keepers are watched, so that they do not count as leftovers
                self._conclude(each)

    def report_start(self, replica: LocalReplica, trace: Trace) -> None:
        """Report the start of a replica if this trace records it and it was not reported before."""
        if trace.pid is not None and not replica.has_started:
            replica.trace = trace
            replica.resolve_start(is_begun=True)
            self.tracker.start(replica)

    def stop(self, replicas: Sequence[LocalReplica], grace_seconds: float) -> None:
        """Send TERM, and KILL after the grace; each end is reported when no process of the replica is left."""
        self.adopt(replicas)
        for each in replicas:
            if not each.is_kept:
                self._loop.call_later(_MOMENT_SECONDS, self.stop, (each,), grace_seconds)
            elif each.watched is not None:
                if grace_seconds <= 0:
                    self._signal(each, signal.SIGKILL)
                elif not each.is_stopped:
                    self._signal(each, signal.SIGTERM)
                    self._loop.call_later(grace_seconds, self._signal, each, signal.SIGKILL)
                each.is_stopped = True

    def living(self) -> dict[Incarnation, int]:
        """Return the running replicas, without helpers, with the pids of their keepers."""
        return {each.id: pid for each, pid in self._watched() if not each.id.replica.is_helper}

    def _watched(self) -> Iterator[tuple[LocalReplica, int]]:
        return ((each, each.keeper) for each in self.tracker if each.watched is not None and each.keeper)

    def _find_keeper(self, replica: LocalReplica) -> bool:
        """Watch the keeper of a replica, now or a moment later; return False if it has none."""
        has_keeper = is_locked(replica.path)
        trace = replica.read()
        if has_keeper and trace.boot in (None, self._boot):  # else its keeper is on another machine with the same home
            try:
                if trace.keeper is not None:
                    self.watch(replica, trace.keeper)
                    self._read_start(replica)
                    return True
            except ProcessLookupError:
                replica.read()
                has_keeper = False
            except OSError:  # no free descriptor at the moment
                pass
            if has_keeper:  # the keeper was just forked and has not written its first line
                self._loop.call_later(_MOMENT_SECONDS, self.adopt, (replica,))
                return True
        replica.is_kept = True
        return False

    def _read_start(self, replica: LocalReplica) -> None:
        """Report the start that the trace records; if it records none yet, look again a moment later."""
        trace = replica.read()
        self.report_start(replica, trace)
        if trace.pid is None and replica.watched is not None:
            self._loop.call_later(_MOMENT_SECONDS, self._read_start, replica)

    def _keeper_ended(self, replica: LocalReplica) -> None:
        if replica.watched is not None:
            self._loop.remove_reader(replica.watched)
            os.close(replica.watched)
            replica.watched = None
        is_begun = replica.read().keeper is not None or replica.is_stopped
        if replica.resolve_start(is_begun=is_begun) and not is_begun:
            replica.is_kept = False  # it is started again
        else:
            self._conclude(replica)

    def _conclude(self, replica: LocalReplica) -> None:
        """Report the end of a replica; if its keeper was killed, kill the leftover processes of the replica first."""
        trace = replica.trace
        _reap()
        if not trace.over and self._end_leftovers(replica):
            self._loop.call_later(_MOMENT_SECONDS, self._conclude, replica)
            return
        if trace.exit:
            end = explain_exit(trace, trace.exit, is_stopped=replica.is_stopped)
        else:
            end = unrecorded_exit(trace, self._memory.group(replica.folder))
        self._memory.clear(replica.folder)
        self.tracker.end(replica, End(end, self._end_seconds(replica), has_started=trace.pid is not None))

    def _end_seconds(self, replica: LocalReplica) -> float:
        """Return when a replica ended, as seconds since boot; the current time if no keeper recorded it."""
        if replica.trace.exit and replica.trace.boot in (None, self._boot):
            return replica.trace.at_seconds
        if replica.trace.exit:
            with suppress(OSError):
                return keeper.now() - (time.time() - replica.path.stat().st_mtime)
        return keeper.now()

    def _end_leftovers(self, replica: LocalReplica) -> bool:
        """Kill the leftover processes of a replica that has no keeper any more; return whether there were any."""
        leftovers = find_leftovers(
            replica.trace,
            boot=self._boot,
            folder=replica.folder,
            group=self._memory.members(replica.folder),
            keepers={pid for _, pid in self._watched()} | self._forkers(),
        )
        ended = [keeper.signal_process(pid, signal.SIGKILL) for pid in leftovers]
        return any(ended)

    def _signal(self, replica: LocalReplica, number: int) -> None:
        if replica.watched is None:
            return
        trace = replica.read()
        if trace.pid is None and not replica.has_started:
            self._loop.call_later(_MOMENT_SECONDS, self._signal, replica, number)
        elif trace.pid is not None and trace.is_running(self._boot):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(trace.pid, number)
                os.killpg(trace.pid, signal.SIGCONT)  # so that a stopped process receives the signal
        elif replica.keeper and (number == signal.SIGKILL or trace.pid is None):
            # The replica has ended and left processes, or has overwritten its trace.
            for pid in keeper.descendants([replica.keeper]):
                keeper.signal_process(pid, number)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
