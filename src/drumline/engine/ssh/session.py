"""One run on its hosts, inside its supervisor.

One task reads the messages of all hosts from one queue. Whenever a host connects again, it receives all its orders
again; an order that it has carried out already changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import assert_never

from drumline.engine.agent.answers import Done
from drumline.engine.agent.launches import incarnation_to_text
from drumline.engine.argument_limits import too_long_arguments
from drumline.engine.events import EventQueue
from drumline.engine.log import log
from drumline.engine.protocol import Placed as PlacedAttempt
from drumline.engine.protocol import Site
from drumline.engine.ssh.attempt_placements import AttemptPlacements
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.delivery import deliver_when_connected
from drumline.engine.ssh.helpers import Helpers, PartEnded
from drumline.engine.ssh.host_placement import HostPlacement
from drumline.engine.ssh.host_queries import HostQueries
from drumline.engine.ssh.inbox import Connected, Inbox, Prepared, Received
from drumline.engine.ssh.monitor import CHECK_SECONDS, HostLost, HostMonitor, HostSilent
from drumline.engine.ssh.orders import Orders, group_by
from drumline.engine.ssh.placement_request import HostMustWait, PlacementRequest
from drumline.engine.ssh.plan_options import hosts_of
from drumline.engine.ssh.preparation import Preparation
from drumline.engine.ssh.receiver import Receiver, ReplicaEnded
from drumline.engine.ssh.replicas import HostReplica, HostReplicas
from drumline.engine.ssh.reports import EventReport, Report
from drumline.engine.ssh.sync import ProjectSync
from drumline.engine.tasks import Tasks, Work
from drumline.engine.tracker import NEVER_STARTED
from drumline.errors import DrumlineError, EngineError
from drumline.plan.types import Launch, Plan, ReplicaId
from drumline.run.event import EngineFailed, EngineWarned, Event, RoomFound
from drumline.run.idle import WorkSample
from drumline.run.incarnation import Incarnation
from drumline.run.rendezvous import Sockets
from drumline.run.usage import Usage

_SOON_SECONDS = 0.2
_COLLECT_SECONDS = 600.0  # to fetch the last output of the chief
_COLLECT_GRACE_SECONDS = 30.0  # the same, for a chief that is stopped, and after a forced end
_RELEASE_SECONDS = 60.0  # for all hosts to confirm that no process is left
_CONNECT_SECONDS = 10.0  # for a host that is not connected then
_CONFIRM_SECONDS = 30.0  # for a connected host to confirm it


class SshSession:
    """Starts, stops and watches the replicas of one run; owns the tasks that talk to its hosts."""

    def __init__(self, plan: Plan, run_dir: Path, site: Site) -> None:
        self._plan = plan
        self._options = hosts_of(plan)
        self._loop = loop = asyncio.get_running_loop()
        self._events = EventQueue()
        report = self._events.put
        self._tasks = tasks = Tasks(loop)
        self._inbox: Inbox = asyncio.Queue()
        self._connections = connections = {
            host.name: HostConnection(host, self._options, self._inbox) for host in self._options.all
        }
        self._replicas = replicas = HostReplicas(run_dir, loop, report)
        self._helpers = helpers = Helpers(run_dir, loop, report, plan.helpers)
        self.places = AttemptPlacements(run_dir, report)
        self._orders = Orders(connections, replicas, helpers, tasks, report)
        self._sync = ProjectSync(plan, site, run_dir, connections)
        self._monitor = HostMonitor(run_dir, self._options, connections, replicas, helpers, loop.time())
        self._preparation = Preparation(
            plan, connections, helpers, self._sync, self._orders, tasks, self._inbox, report
        )
        self._receiver = Receiver(connections, replicas, helpers, self.places, self._inbox, loop, report)
        self.host_queries = HostQueries(connections, replicas, self._receiver)
        self._waits_at: tuple[str, int] | None = None  # the host, and the attempt that waits for its resources
        self._supplied: set[tuple[str, int]] = set()  # hosts that have all files that an attempt needs
        self._fetching: asyncio.Task[None] | None = None
        self._collecting: dict[Incarnation, asyncio.Task[None]] = {}
        for connection in connections.values():
            tasks.begin(connection.run())
        tasks.begin(self._repeat(self._read_inbox))
        tasks.begin(self._repeat(self._watch_hosts))

    def events(self) -> AsyncIterator[Event]:
        """Return the events of the run on its hosts."""
        return self._events

    async def _repeat(self, step: Callable[[], Work]) -> None:
        """Repeat a step, also after an error: the error ends the run, but the step is needed until then."""
        try:
            while True:
                await step()
        except Exception:
            self._tasks.begin(self._repeat(step))
            raise

    async def _read_inbox(self) -> None:
        """Handle the next message from a host."""
        match await self._inbox.get():
            case Connected(host=host):
                self._connect(host)
            case Received(host=host, report=report):
                self._receive(host, report)
            case Prepared(host=host, warning=warning):
                self._warn(warning)
                self._find_room(host)
            case message:
                assert_never(message)

    def _receive(self, host: str, report: Report) -> None:
        match self._receiver.receive(host, report):
            case None:
                pass
            case ReplicaEnded() as ended:
                self._end(ended)
            case PartEnded() as ended:
                self._preparation.end_part(ended)
            case RoomFound() as event:
                self._waits_at = None
                self._events.put(event)
            case other:
                assert_never(other)

    def _connect(self, host: str) -> None:
        """Send a connected host all its orders."""
        self._warn(self._monitor.note_connected(host))
        self._orders.send(host)
        if host in self._monitor.unverified:
            self._tasks.begin(self._verify_host(host))
        self._preparation.join(host)
        self._find_room(host)

    async def _verify_host(self, host: str) -> None:
        """Have a host kill all replicas that were reported as ended."""
        known = (*(each.id for each in self._replicas.of(host)), *self._helpers.living(host))
        order = {"do": "clear", "attempt": self.places.attempt, "keep": [incarnation_to_text(each) for each in known]}
        if await self._orders.send_all(host, [order]):
            self._monitor.mark_verified(host)

    def _find_room(self, host: str) -> None:
        """Report free resources for the attempt that waits for this host."""
        if self._waits_at and self._waits_at[0] == host:
            attempt, self._waits_at = self._waits_at[1], None
            self._receive(host, EventReport(RoomFound(attempt)))

    async def _watch_hosts(self) -> None:
        """Warn of silent hosts, and report that replicas on lost hosts have ended."""
        await asyncio.sleep(CHECK_SECONDS)
        for found in [*self._monitor.check(self._loop.time())]:
            match found:
                case HostSilent(warning=warning):
                    self._warn(warning)
                case HostLost(host=host, exit=exit_):
                    for ended in self._helpers.lose(host, exit_):
                        self._preparation.end_part(ended)
                    self._replicas.lose(host, exit_)
                case _:
                    assert_never(found)

    def _warn(self, message: str) -> None:
        if message:
            self._events.put(EngineWarned(self.places.attempt, message))

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> PlacedAttempt:
        """Have the hosts that answer claim the resources of replicas; raise MustWait if one has none free yet.

        The placement of an attempt that has begun is read from this machine, without a request to a host.
        """
        if keep and (known := self.places.get(attempt)):
            return PlacedAttempt(known.places)
        self.places.attempt = attempt
        unready = {name: why for name in self._connections if (why := self._helpers.unready(name))}
        failed = frozenset(filter(self._helpers.has_failed, unready))
        lost, patience = frozenset(self._monitor.lost), self._options.lost_seconds
        try:
            placed, warnings = await self.places.ask(
                attempt, PlacementRequest(plan, self._connections, lost, patience, unready, failed)
            )
        except HostMustWait as wait:
            self._waits_at = wait.host, attempt
            if wait.coming and not self._helpers.living(wait.host):  # its helpers are about to start, or have ended
                self._loop.call_later(_SOON_SECONDS, self._inbox.put_nowait, Prepared(wait.host))
            raise
        return PlacedAttempt(placed.places, tuple(warnings))

    async def start(self, launches: Sequence[Launch]) -> None:
        """Start the replicas that were not started before, once their hosts have all files that they need."""
        for problem in too_long_arguments(launches):
            raise EngineError(problem)
        if not launches:
            for connection in self._connections.values():
                if connection.is_up:
                    self._tasks.begin(_release_claims(connection))
            return
        attempt = self.places.attempt = launches[0].attempt
        placed = self.places.get(attempt)
        if placed is None and (placed := self.places.last):
            self.places.keep(attempt, placed)
        if placed is None:
            raise AssertionError("an attempt is placed before it is started")
        names = [Incarnation(each.replica.id, each.attempt, each.incarnation) for each in launches]
        replicas = self._replicas.ask([(name, placed.hosts[name.replica]) for name in names])
        new = []
        for replica, launch in zip(replicas, launches, strict=True):
            if replica.end is None and replica.launch is None:
                replica.launch = launch
                new.append(replica)
        for host, some in group_by(new, lambda each: each.host).items():
            if (host, attempt) in self._supplied or all(each.is_ordered for each in some):
                self._begin(host, some)
            else:
                self._tasks.begin(self._supply(host, placed, some))
        if self._fetching is None:
            self._fetching = self._tasks.begin(self._follow_output())

    async def _supply(self, host: str, placed: HostPlacement, replicas: Sequence[HostReplica]) -> None:
        """Send a host the files that an attempt needs, then start its replicas."""
        attempt = replicas[0].id.attempt
        places = {name: placed.places[replica] for replica, name in placed.hosts.items()}
        chief = placed.hosts.get(self._plan.chief or replicas[0].id.replica, host)
        bring = partial(self._sync.supply, host, attempt, chief, places)
        try:
            is_there = await deliver_when_connected(
                self._connections[host], bring, lambda: any(each.end is None for each in replicas)
            )
        except DrumlineError as error:
            self._refuse(replicas, error.message)
            return
        if is_there:
            self._supplied.add((host, attempt))
            is_everywhere = all((each, attempt) in self._supplied for each in placed.hosts.values())
            if is_everywhere and (carried := self._sync.carried()):
                self._events.put(carried)
            self._begin(host, [each for each in replicas if each.end is None])

    def _begin(self, host: str, replicas: Iterable[HostReplica]) -> None:
        for each in replicas:
            self._replicas.order(each)
        self._orders.send(host)

    def _refuse(self, replicas: Sequence[HostReplica], message: str) -> None:
        """Report that a host cannot start these replicas."""
        left = [each for each in replicas if each.end is None]
        if left:
            self._events.put(EngineFailed(left[0].id.attempt, message))  # first, since it is the cause
        for each in left:
            self._replicas.end(each, NEVER_STARTED, self._loop.time())

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Run a helper on every host that answers; it is reported as one."""
        self._preparation.prepare(plan, Incarnation(helper, 0, incarnation))

    async def stop(self, incarnations: Sequence[Incarnation], *, grace_seconds: float) -> None:
        """Stop these on their hosts; an incarnation that was ordered on no host is reported as never started."""
        wanted = []
        for each in incarnations:
            if each.replica.is_helper:
                self._preparation.stop(each, grace_seconds)
                continue
            known, placed = self._replicas.get(each), self.places.get(each.attempt)
            host = known.host if known else placed.hosts.get(each.replica, "") if placed else ""
            wanted.append((each, host))
        hosts, kill_at = set(), self._loop.time() + max(0.0, grace_seconds)
        for replica in self._replicas.ask(wanted):
            if replica.end is not None:
                continue
            if collecting := self._collecting.get(replica.id):
                seconds = grace_seconds + _COLLECT_GRACE_SECONDS if grace_seconds > 0 else 0.0
                self._loop.call_later(seconds, collecting.cancel)
            if not replica.host or not replica.is_ordered:
                self._replicas.end(replica, NEVER_STARTED, self._loop.time())
                continue
            replica.kill_at = kill_at if replica.kill_at is None or grace_seconds <= 0 else replica.kill_at
            hosts.add(replica.host)
        for host in hosts:
            self._orders.send(host)

    def _end(self, ended: ReplicaEnded) -> None:
        """Report an end; if a chief has succeeded, fetch its output first."""
        replica = ended.replica
        if replica.end is not None:
            return
        if replica.id.replica != self._plan.chief or not ended.exit.ok:
            self._replicas.end(replica, ended.exit, ended.at_seconds, ended.usage)
        elif replica.id not in self._collecting:
            collecting = self._collecting[replica.id] = self._tasks.begin(self._collect())
            self._tasks.begin(self._end_after(collecting, ended))

    async def _end_after(self, collecting: asyncio.Task[None], ended: ReplicaEnded) -> None:
        await asyncio.wait({collecting})
        self._replicas.end(ended.replica, ended.exit, ended.at_seconds, ended.usage)

    async def _collect(self) -> None:
        """Fetch the output of the chief; an error becomes a warning, and the chief still counts as successful."""
        try:
            await self._sync.collect()
        except DrumlineError as error:
            self._warn(f"the output was not fetched: {error.message}")
        for warning in self._sync.take_warnings():
            self._warn(warning)

    async def _follow_output(self) -> None:
        async for warning in self._sync.follow():
            self._warn(warning)

    def traces(self) -> Iterator[Path]:
        """Yield the folders into which logs of replicas and helpers are written."""
        return chain(self._replicas.tracker.traces(), self._helpers.folders())

    async def usage(self, *, watched: bool) -> Sequence[Usage]:
        """Return the usage of replicas, on hosts that answer in time."""
        return await self.host_queries.usage(watched=watched)

    async def work_samples(self) -> Sequence[WorkSample]:
        """Return the work of replicas so far, on hosts that answer in time."""
        return await self.host_queries.work_samples()

    async def sockets(self) -> Sequence[Sockets]:
        """Return the sockets of replicas, on hosts that answer in time."""
        return await self.host_queries.sockets()

    async def stacks(self, incarnations: Sequence[Incarnation], *, gently: bool) -> None:
        """Have the hosts save the stacks of these replicas, and fetch them."""
        await self.host_queries.stacks(incarnations, gently=gently)

    async def release(self, *, forced: bool = False) -> None:
        """Confirm that no process of the run is left on any host that was ever used, and disconnect."""
        if not self._tasks.is_open:
            return
        if self._fetching:
            self._fetching.cancel()
        seconds = _COLLECT_GRACE_SECONDS if forced else _COLLECT_SECONDS
        used = {each.host for each in self._replicas if each.host} | self._helpers.hosts() | self._monitor.unverified
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds + _RELEASE_SECONDS):
                await self._collect_last(seconds)
                await asyncio.gather(*map(self._release, used))
        await self.disconnect()
        self._monitor.note_end(time.time())

    async def _collect_last(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._sync.collect()
        except (DrumlineError, TimeoutError) as error:
            why = error.message if isinstance(error, DrumlineError) else f"not sent within {seconds:g} s"
            log(f"the last output of the chief was not fetched: {why}")

    async def _release(self, host: str) -> None:
        """Have a host kill all remaining processes of the run; it stays unverified unless it confirms that."""
        connection = self._connections[host]
        with suppress(TimeoutError, DrumlineError):
            if await connection.wait_connected(_CONNECT_SECONDS):
                await asyncio.wait_for(connection.ask({"do": "release"}, Done), _CONFIRM_SECONDS)
                self._monitor.mark_verified(host)

    async def disconnect(self) -> None:
        """Cancel all tasks and close every connection; replicas continue."""
        self.places.close()
        await self._tasks.close()
        for connection in self._connections.values():
            if connection.shell:
                await connection.shell.close()


async def _release_claims(connection: HostConnection) -> None:
    """Have a host release its claims for replicas that were not started."""
    with suppress(DrumlineError):  # without a connection the host releases its claims by itself
        await connection.send({"do": "close"})
