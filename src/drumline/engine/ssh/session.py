"""One run on its hosts.

An order is remembered, not sent once: whenever a host answers again, it gets all of them once more, which changes
nothing where they were carried out.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from drumline.engine.agent.launches import life_to_data
from drumline.engine.events import EventQueue
from drumline.engine.incarnation import Incarnation
from drumline.engine.notes import read_notes
from drumline.engine.protocol import Placed as PlacedAttempt
from drumline.engine.protocol import Site
from drumline.engine.ssh.errands import Errands
from drumline.engine.ssh.hearing import Hearing
from drumline.engine.ssh.helpers import Helpers
from drumline.engine.ssh.link import Link
from drumline.engine.ssh.lookout import Lookout
from drumline.engine.ssh.luggage import Luggage, Way
from drumline.engine.ssh.muster import Calls, Muster
from drumline.engine.ssh.news import News
from drumline.engine.ssh.orders import by, orders
from drumline.engine.ssh.place import Placed
from drumline.engine.ssh.places import Places
from drumline.engine.ssh.placing import HostMustWait, Placing
from drumline.engine.ssh.planned import Host, hosts_of
from drumline.engine.ssh.replicas import HostReplica, HostReplicas
from drumline.engine.ssh.replies import Replies
from drumline.engine.ssh.survey import Survey
from drumline.engine.strings import too_long
from drumline.engine.tasks import Tasks
from drumline.engine.tracker import NEVER_STARTED
from drumline.errors import EngineError
from drumline.plan.types import Launch, Plan, ReplicaId
from drumline.run.event import EngineFailed, EngineWarned, Event, ReplicaExited, RoomFound
from drumline.run.quiet import Pulse
from drumline.run.rendezvous import Sockets
from drumline.run.usage import Usage

_SOON_SECONDS = 0.2
_COLLECT_SECONDS = 600.0  # that what was written may take on its way here
_COLLECT_GRACE_SECONDS = 30.0  # the same, of a chief that is to be stopped, and of a run whose end is forced
_RELEASE_SECONDS = 60.0  # that hosts may take to say that nothing is left


class SshSession:
    """Starts, stops and watches the replicas of one run; owns the tasks that talk to its hosts."""

    def __init__(self, plan: Plan, run_dir: Path, site: Site) -> None:
        self._plan = plan
        self._events = EventQueue()
        loop, tell = asyncio.get_running_loop(), self._events.put
        self._hosts = hosts_of(plan)
        self._run_dir = run_dir
        self._loop = loop
        self._tell = tell
        self._lives = HostReplicas(run_dir, loop, tell)
        self._replies = Replies(self._lives.tracker, loop, lambda host: self._links[host].shell is not None)
        self._helpers = Helpers(run_dir, self._order, loop, tell, plan.helpers)
        self._tasks = Tasks(loop)
        self._links = {host.name: self._link(host) for host in self._hosts.all}
        self._lookout = Lookout(run_dir, self._hosts, self._links, (self._lives, self._helpers), loop, self._warn)
        self._luggage = Luggage(plan, site, run_dir, self._way, self._warn)
        self._errands = Errands(self._links, self._luggage)
        goods, calls = (self._luggage, self._errands), Calls(tell, self._warn, self._wake, self._lookout.look)
        self._muster = Muster(plan, self._links, self._helpers, goods, self._tasks, calls)
        self._hearing = Hearing(
            self._links,
            (self._lives, self._helpers),
            loop,
            tell,
            end=self._end,
            takes_part=self._takes_part,
            was_given=self._was_given,
            room=self._room_found,
            warn=self._warn,
        )
        self.survey = Survey(self._links, self._lives, self._hearing.foreign)
        self.places = Places(run_dir, tell)
        self._waits_at: tuple[str, int] | None = None  # for room, and in which attempt
        self._supplied: set[tuple[str, int]] = set()  # hosts that have all that an attempt needs
        self._fetching: asyncio.Task[None] | None = None
        self._collecting: dict[Incarnation, tuple[asyncio.Task[None], Callable[[], None]]] = {}
        for link in self._links.values():
            self._tasks.begin(link.keep())

    @property
    def _attempt(self) -> int:
        return self._hearing.attempt

    def _link(self, host: Host) -> Link:
        call, name = self._loop.call_soon, host.name  # an error there is not one of the host
        return Link(
            host,
            self._hosts,
            hear=lambda news: call(self._hear, name, news),
            rises=lambda: call(self._rise, name),
        )

    def _way(self, host: str) -> Way | None:
        """How a host is reached that answers."""
        link = self._links[host]
        return Way(link.shell, link.facts.base) if link.is_up and link.shell and link.facts else None

    def _warn(self, message: str) -> None:
        self._tell(EngineWarned(self._attempt, message))

    def events(self) -> AsyncIterator[Event]:
        """Return everything that happens to the run on its hosts."""
        return self._events

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> PlacedAttempt:
        """Have the hosts that answer claim what replicas need; raise MustWait if one has no room yet.

        Where an attempt is that is under way was recorded when it was placed: no host is asked for that.
        """
        if keep and (known := self.placed(attempt)):
            return PlacedAttempt(known.places)
        self._hearing.attempt = attempt
        unready = {name: why for name in self._links if (why := self._helpers.unready(name))}
        failed = frozenset(filter(self._helpers.has_failed, unready))
        lost, patience = frozenset(self._lookout.lost), self._hosts.lost_seconds
        try:
            placed, remarks = await self.places.ask(
                attempt, Placing(plan, self._links, lost, patience, unready, failed)
            )
        except HostMustWait as wait:
            self._waits_at = wait.host, attempt
            if wait.comes and not self._helpers.living(wait.host):  # it is only about to begin, or is done by now
                self._loop.call_later(_SOON_SECONDS, partial(self._wake, wait.host))
            raise
        return PlacedAttempt(placed.places, tuple(remarks))

    def placed(self, attempt: int) -> Placed | None:
        """Where an attempt was placed, by us or by an earlier supervisor."""
        return self.places.get(attempt)

    async def start(self, launches: Sequence[Launch]) -> None:
        """Have those started that were not before; hosts are brought first what they need for that."""
        for problem in too_long(launches):
            raise EngineError(problem)
        if not launches:
            self._give_back()
            return
        self._hearing.attempt = launches[0].attempt
        placed = self.placed(self._attempt)
        if placed is None and (placed := self.places.last):
            self.places.keep(self._attempt, placed)
        if placed is None:
            raise AssertionError("a line is placed before it is started")
        lives = [Incarnation(each.replica.id, each.attempt, each.incarnation) for each in launches]
        kept = self._lives.ask([(life, placed.hosts[life.replica]) for life in lives])
        new = []
        for each, launch in zip(kept, launches, strict=True):
            if each.end is None and each.launch is None:
                each.launch = launch
                new.append(each)
        for host, theirs in by(new, lambda each: each.host).items():
            if (host, self._attempt) in self._supplied or all(each.is_ordered for each in theirs):
                self._begin(host, theirs)
            else:
                self._supply(host, placed, theirs)
        if self._fetching is None:
            self._fetching = self._tasks.begin(self._luggage.follow())
        self._lookout.look()

    def _supply(self, host: str, placed: Placed, lives: Sequence[HostReplica]) -> None:
        """Have a host brought what it needs for an attempt, then begin there."""
        places = {name: placed.places[replica] for replica, name in placed.hosts.items()}
        chief = placed.hosts.get(self._plan.chief or lives[0].id.replica, host)
        errand = self._errands.supply(
            host,
            partial(self._luggage.supply, host, lives[0].id.attempt, chief, places),
            while_=lambda: any(each.end is None for each in lives),
            refused=partial(self._refused, lives),
            done=partial(self._is_supplied, host, lives),
        )
        self._tasks.begin(errand)

    def _is_supplied(self, host: str, lives: Sequence[HostReplica]) -> None:
        attempt = lives[0].id.attempt
        self._supplied.add((host, attempt))
        hosts = placed.hosts.values() if (placed := self.placed(attempt)) else ()
        if all((each, attempt) in self._supplied for each in hosts) and (carried := self._luggage.carried()):
            self._tell(carried)
        self._begin(host, [each for each in lives if each.end is None])

    def _begin(self, host: str, lives: Iterable[HostReplica]) -> None:
        for each in lives:
            self._lives.order(each)
        self._order(host)

    def _refused(self, lives: Sequence[HostReplica], message: str) -> None:
        if left := [each for each in lives if each.end is None]:
            self._failed(left[0].id.attempt, message)  # first: that is the cause
        for each in left:
            if each.end is None:  # it was not stopped by that
                self._lives.end(each, NEVER_STARTED, self._loop.time())

    def _failed(self, attempt: int, message: str) -> None:
        self._tell(EngineFailed(attempt, message))

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Have a helper on every host that answers; it is reported as one."""
        self._muster.prepare(plan, Incarnation(helper, 0, incarnation))

    async def stop(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        grace_seconds: float,
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Have these stopped where they are; those that are on no host never started."""
        wanted = []
        for life in (Incarnation(each, attempt, incarnations.get(each, 0)) for each in replicas):
            if life.replica.is_helper:
                self._muster.stop(life, grace_seconds)
                continue
            known, placed = self._lives.get(life), self.placed(life.attempt)
            host = known.host if known else placed.hosts.get(life.replica, "") if placed else ""
            wanted.append((life, host))
        hosts, kill_at = set(), self._loop.time() + max(0.0, grace_seconds)
        for kept in self._lives.ask(wanted):
            if kept.end is not None:
                continue
            if kept.id in self._collecting:
                seconds = grace_seconds + _COLLECT_GRACE_SECONDS if grace_seconds > 0 else 0.0
                self._loop.call_later(seconds, partial(self._end_collecting, kept.id))
            if not kept.host or not kept.is_ordered:
                self._lives.end(kept, NEVER_STARTED, self._loop.time())
                continue
            kept.kill_at = kill_at if kept.kill_at is None or grace_seconds <= 0 else kept.kill_at
            hosts.add(kept.host)
        for host in hosts:
            self._order(host)
        self._lookout.look()

    def _order(self, host: str) -> None:
        """Tell a host everything that is wanted of it; if it does not answer, it is told when it does."""
        number = self._replies.expect(host)
        if self._links[host].is_up:
            messages = [*self._helpers.orders(host), *orders(self._lives, host, os.environ, self._loop.time())]
            done = partial(self._lives.tracker.release, number=number)
            self._tasks.begin(self._errands.tell(host, messages, self._failed, done))

    def _end(self, event: ReplicaExited, usage: Usage | None) -> None:
        """Tell an end; that the chief is done only when all that it wrote is here. What failed is told at once."""
        known = self._lives.get(Incarnation.of(event))
        if known is None or known.end is not None:
            return
        then = partial(self._lives.end, known, event.exit, event.at_seconds, usage)
        if event.replica == self._plan.chief and event.exit.ok:
            if known.id not in self._collecting:
                self._collecting[known.id] = self._tasks.begin(self._errands.collect(self._warn, then)), then
        else:
            then()

    def _end_collecting(self, life: Incarnation) -> None:
        """Wait no more for what a chief has written: it is to be stopped, and its host may never send all of it."""
        collecting, then = self._collecting[life]
        collecting.cancel()
        then()

    def _rise(self, host: str) -> None:
        """A host answers, perhaps again."""
        self._lookout.found(host)
        self._order(host)
        if host in self._lookout.doubtful:
            lives = (*(each.id for each in self._lives.of(host)), *self._helpers.living(host))
            clear = {"do": "clear", "attempt": self._attempt, "keep": [life_to_data(life) for life in lives]}
            self._tasks.begin(self._errands.tell(host, [clear], self._failed, self._lookout.is_clear))
        self._muster.join(host)
        self._wake(host)

    def _wake(self, host: str) -> None:
        """Have a line placed that waits for this host."""
        if self._waits_at and self._waits_at[0] == host:
            attempt, self._waits_at = self._waits_at[1], None
            self._hearing.find_room(host, RoomFound(attempt))

    def _hear(self, host: str, news: News) -> None:
        self._hearing.hear(host, news)

    def _takes_part(self, host: str) -> bool:
        """Whether a host has replicas in this attempt, or may get some: it is not placed yet."""
        placed = self.placed(self._attempt)
        return placed is None or host in placed.hosts.values()

    def _was_given(self, life: Incarnation, host: str) -> bool:
        """Whether an earlier supervisor told a host to start this."""
        notes = read_notes(life.folder(self._run_dir))
        return notes.get("host") == host or host in (notes.get("hosts") or ())

    def _room_found(self, event: RoomFound) -> None:
        self._waits_at = None
        self._tell(event)

    def traces(self) -> Iterator[Path]:
        """The folders into which logs come."""
        return chain(self._lives.tracker.traces(), self._helpers.folders())

    async def usage(self, *, watched: bool) -> Sequence[Usage]:
        """Return what hosts measure that answer at once."""
        return await self.survey.usage(watched=watched)

    async def pulses(self) -> Sequence[Pulse]:
        """Return what replicas have done, on hosts that answer at once."""
        return await self.survey.pulses()

    async def sockets(self) -> Sequence[Sockets]:
        """Return on which ports replicas listen, on hosts that answer at once."""
        return await self.survey.sockets()

    async def stacks(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        gently: bool,
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Have the hosts save stacks, and bring them here."""
        lives = [Incarnation(each, attempt, incarnations.get(each, 0)) for each in replicas]
        await self.survey.stacks(lives, gently=gently)

    def _give_back(self) -> None:
        """Have every host give back what was claimed and not started."""
        for host, link in self._links.items():
            if link.is_up:
                self._tasks.begin(self._errands.let_go(host))

    async def release(self, *, forced: bool = False) -> None:
        """See that nothing of the run is left on any host that was ever used, and hang up."""
        if not self._tasks.is_open:
            return
        if self._fetching:
            self._fetching.cancel()
        used = {each.host for each in self._lives if each.host} | self._helpers.hosts() | self._lookout.doubtful
        with suppress(TimeoutError):
            seconds = _COLLECT_GRACE_SECONDS if forced else _COLLECT_SECONDS
            async with asyncio.timeout(seconds + _RELEASE_SECONDS):
                for host in await self._errands.release(used, seconds):
                    self._lookout.is_clear(host)
        await self.hang_up()
        self._lookout.leave(time.time())

    async def hang_up(self) -> None:
        """End everything that goes on here, and close every connection; replicas are left alone."""
        self.places.close()
        await self._tasks.close()
        await self._errands.hang_up()
