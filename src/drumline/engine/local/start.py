"""How a life begins: with a keeper that is forked from the supervisor, or from a warm process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from drumline.engine.local.life import MARK, Life
from drumline.engine.local.limit import Limits
from drumline.engine.local.trace import Trace, open_trace, read_trace
from drumline.engine.protocol import Tell
from drumline.errors import EngineError
from drumline.plan.types import Launch, ReplicaId
from drumline.record import Record
from drumline.run.event import EngineFailed
from drumline.run.traces import LOG, TRACE
from drumline.runtime import TRACE_DIR, keeper
from drumline.runtime.lock import is_locked
from drumline.runtime.order import Descriptors, NextSupervisor, Order
from drumline.runtime.private import make_folder, open_file

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from drumline.engine.local.room import Room
    from drumline.engine.local.warm.client import WarmProcesses, Wish

_LONGEST_NOTE = 160
_MOMENT_SECONDS = 0.005
_TOGETHER = 32  # keepers that are forked at once: each takes two descriptors until they are


class Start(Record):
    """All that it takes to begin a life; the descriptors are whoever's who made it."""

    launch: Launch
    env: Mapping[str, str]
    held: Sequence[int] = ()
    enter: Sequence[int] = ()
    note: str = ""

    @property
    def life(self) -> Life:
        """Whose beginning it is."""
        return Life(self.launch.replica.id, self.launch.attempt, self.launch.incarnation)

    def copy(self) -> Self:
        """The same with descriptors of its own."""
        return self.replace(held=tuple(map(os.dup, self.held)), enter=tuple(map(os.dup, self.enter)))

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in (*self.held, *self.enter):
            os.close(descriptor)


class Follow(Record):
    """Whom to tell what becomes of a beginning."""

    began: Callable[[Life, int], None]  # with its keeper
    adopt: Callable[[Life], None]  # it had begun before, or nobody knows by whom it is kept
    heard: Callable[[Life, Trace], None]  # its process is about to become the replica


class Starter:
    """Begins the lives of one run; owns whatever waits for a warm process."""

    def __init__(
        self,
        run_dir: Path,
        *,
        boot: str,
        file_limits: tuple[int, int],
        loop: AbstractEventLoop,
        tell: Tell,
        memory: Limits,
        lease: tuple[str, float] | None = None,
        next_supervisor: NextSupervisor | None = None,
    ) -> None:
        self._run_dir = run_dir
        self._next_supervisor = next_supervisor
        self._lease = lease or ("", 0.0)
        self._boot = boot
        self._file_limits = file_limits
        self._loop = loop
        self._tell = tell
        self._memory = memory
        self._waiting: dict[Life, Start] = {}
        self._ordered: dict[Life, tuple[Start, Follow]] = {}  # from a warm process; until a keeper has them

    def start(self, starts: Iterable[Start], follow: Follow, warm: WarmProcesses | None, room: Room | None) -> None:
        """Begin these lives; raise EngineError if one cannot be, when those before it have been.

        They share the CPUs of a room while they import. Warm processes that are not waited for are begun last.
        """
        news = self._open_news(follow)
        ready: list[_Ready] = []
        later: dict[str, Wish] = {}
        try:
            for cold in starts if warm is None else self._order_warm(starts, follow, warm, room, later):
                try:
                    if each := self._get_ready(cold, follow, news):
                        ready.append(each)
                    if len(ready) == _TOGETHER:
                        _fork_all(ready, follow)
                except OSError as error:
                    raise _refused(cold.life, error) from None
        finally:
            try:
                _fork_all(ready, follow)
            finally:
                os.close(news)
        if warm:
            for wish in later.values():
                warm.prepare(wish)

    def cancel(self, life: Life) -> None:
        """If it waits for a warm process, it waits no more."""
        if life in self._waiting:
            self._waiting.pop(life).close()
        self._release(life)

    def start_cold(self, life: Life) -> bool:
        """Start a replica that was ordered from a warm process and that no keeper has; return whether it is one.

        A keeper writes its first line before it starts anything, so this never makes a second replica.
        """
        if life not in self._ordered:
            return False
        start, follow = self._ordered.pop(life)
        try:
            self._start_late(start.replace(note="cold: the warm process has ended"), follow)
        finally:
            start.close()
        return True

    def _order_warm(
        self, starts: Iterable[Start], follow: Follow, warm: WarmProcesses, room: Room | None, later: dict[str, Wish]
    ) -> Iterator[Start]:
        """Have replicas forked from a warm process that is ready or worth waiting for; yield the others, and why.

        What is to be made ready beside them is added to `later`.
        """
        from drumline.engine.local.warm.choice import is_worth_waiting  # noqa: PLC0415 - only where there is one
        from drumline.engine.local.warm.client import PREPARING, make_wish  # noqa: PLC0415
        from drumline.engine.local.warm.command import NotWarm  # noqa: PLC0415

        wishes: list[tuple[Start, Wish]] = []
        others = 0
        for start in starts:
            launch = start.launch
            try:
                wishes.append((start, make_wish(warm.kind, launch.replica.argv, start.env, launch.place.workdir)))
            except NotWarm as reason:
                others += 1
                yield start.replace(note=f"cold: {reason}")
        waits = room is None or is_worth_waiting(warm.kind.framework, others + len(wishes), room.cpus)
        ready = {wish.key: waits or warm.is_ready(wish) for _, wish in wishes}
        for start, wish in wishes:
            if ready[wish.key]:
                self._order(start, wish, follow, warm, waits=waits)
            else:
                later[wish.key] = wish
                yield start.replace(note=f"cold: {PREPARING}")

    def _order(self, start: Start, wish: Wish, follow: Follow, warm: WarmProcesses, *, waits: bool) -> None:
        """Have a replica forked from a warm process, once that answers, or start it cold."""
        try:
            self._waiting[start.life] = start.copy()  # the caller closes its own descriptors
        except OSError as error:
            raise _refused(start.life, error) from None

        def go_on(refused: str) -> None:
            waiting = self._waiting.pop(start.life, None)
            if waiting is None:
                return  # it was stopped meanwhile
            if refused:
                self._start_late(waiting.replace(note=f"cold: {refused}"), follow)
            else:
                self._start_late(waiting.replace(note="warm"), follow, partial(warm.start, wish))
            waiting.close()

        warm.ask(wish, go_on, waits=waits)

    def _start_late(self, start: Start, follow: Follow, order_from: _Forker | None = None) -> None:
        """Begin a life when nobody waits for an answer any more."""
        news = self._open_news(follow)
        try:
            ready = self._get_ready(start, follow, news)
            if ready and order_from:
                self._ordered[start.life] = start.copy(), follow
                with closing(ready):
                    order_from(ready.order, ready.descriptors, partial(self._forked, start.life, follow))
            elif ready:
                _fork_all([ready], follow)
        except EngineError as error:
            self._tell(EngineFailed(start.life.attempt, error.message))
        except OSError as error:
            self._tell(EngineFailed(start.life.attempt, _refused(start.life, error).message))
        finally:
            os.close(news)

    def _get_ready(self, start: Start, follow: Follow, news: int) -> _Ready | None:
        """All that a keeper needs to begin this life; None if it has begun before."""
        life, launch = start.life, start.launch
        folder = life.folder(self._run_dir)
        make_folder(folder)
        trace = open_trace(folder / TRACE)
        if trace is None:
            follow.adopt(life)
            return None
        try:
            order = Order(
                name=f"{life.replica} {life.attempt} {life.incarnation}",
                argv=launch.replica.argv,
                env={**start.env, MARK: life.mark(self._run_dir), TRACE_DIR: str(folder)},
                workdir=launch.place.workdir,
                boot=self._boot,
                file_limits=self._file_limits,
                group=self._memory.make(folder, life.attempt, launch.replica.resources.memory_bytes),
                note=start.note[:_LONGEST_NOTE],
                lease=self._lease[0],
                lease_seconds=self._lease[1],
                next_supervisor=self._next_supervisor,
            )
            log = open_file(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError:
            os.close(trace)
            raise
        return _Ready(life, order, Descriptors(trace, log, news, start.held, start.enter))

    def _forked(self, life: Life, follow: Follow, pid: int | None) -> None:
        """Watch the keeper that a warm process has forked; without a pid the warm process ended, perhaps before."""
        if pid is not None:
            try:
                follow.began(life, pid)
            except OSError:
                pass  # it is gone already, or there is no descriptor for it now
            else:
                return
        self._look_for_keeper(life, follow)

    def _look_for_keeper(self, life: Life, follow: Follow) -> None:
        """Adopt a life that has a keeper, and start one that has none.

        A trace stays locked for a moment after its warm process has ended, and a young keeper has not written yet.
        """
        path = life.folder(self._run_dir) / TRACE
        if life not in self._ordered or read_trace(path).keeper is not None:
            self._release(life)
            follow.adopt(life)
        elif is_locked(path):
            self._loop.call_later(_MOMENT_SECONDS, partial(self._look_for_keeper, life, follow))
        else:
            self.start_cold(life)

    def _release(self, life: Life) -> None:
        """Close what was held to start a life cold."""
        if life in self._ordered:
            self._ordered.pop(life)[0].close()

    def _open_news(self, follow: Follow) -> int:
        """A pipe on which processes say that they are about to become replicas; it closes when all have."""
        news, tidings = os.pipe()
        self._loop.add_reader(news, partial(self._hear, news, bytearray(), follow))
        return tidings

    def _hear(self, news: int, heard: bytearray, follow: Follow) -> None:
        data = os.read(news, 65536)
        if not data:
            self._loop.remove_reader(news)
            os.close(news)
            return
        *lines, heard[:] = (heard + data).split(b"\n")
        for line in lines:
            name, pid, unlimited, note = json.loads(line)
            replica, attempt, incarnation = name.split(" ")
            life = Life(ReplicaId.parse(replica), int(attempt), int(incarnation))
            self._release(life)
            follow.heard(life, Trace(pid=pid, unlimited=unlimited, note=note))


_Forker = Callable[[Order, Descriptors, Callable[[int | None], None]], None]


class _Ready(Record):
    """A life whose keeper can be forked; its trace is locked and its log is open."""

    life: Life
    order: Order
    descriptors: Descriptors

    def close(self) -> None:
        """Close what was opened for it; whoever was forked has it, too."""
        os.close(self.descriptors.trace)
        os.close(self.descriptors.log)


def _fork_all(ready: list[_Ready], follow: Follow) -> None:
    """Fork the keepers of these lives, and tell of them; raise EngineError for one that cannot be.

    One after the other, with nothing in between: behind each fork the kernel copies every page that we touch.
    """
    waiting, forked = ready[:], []
    ready.clear()
    try:
        for each in waiting:
            pid = os.fork()
            if pid == 0:
                keeper.keep(each.order, each.descriptors)
            forked.append(pid)
    except OSError as error:
        raise _refused(waiting[len(forked)].life, error) from None
    finally:
        for each in waiting:
            each.close()
        for each, pid in zip(waiting, forked, strict=False):
            try:
                follow.began(each.life, pid)
            except OSError:
                follow.adopt(each.life)  # there is no descriptor for it now


def _refused(life: Life, error: OSError) -> EngineError:
    return EngineError(f"{life.replica} cannot be started: {error.strerror}")
